//! A source on a free port, with resources as long as those of a mesh.

use std::{net::SocketAddr, sync::Arc};

use mixer_adapter::proto::Any;
use mixer_adapter_net::Rate;
use mixer_adapter_streams::{
    mcp::source as mcp,
    stream::{
        RawChange, RawResource, listen,
        source::{Catalogue, ConfigServer, ConfigServerOptions},
    },
    xds::source as xds,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

pub(crate) const COLLECTION: &str = "istio/policy/v1beta1/rules";
pub(crate) const TYPE_URL: &str = "config.istio.io/v1alpha2/rule";

/// The body of a resource, in bytes.
const BODY: usize = 200;

pub(crate) struct Served {
    pub(crate) source: ConfigServer,
    pub(crate) address: SocketAddr,
    changes: u32,
}

impl Served {
    pub(crate) async fn start(resources: u32) -> Self {
        let options = ConfigServerOptions::default()
            .requests(Rate { burst: 1_000_000, ..ConfigServerOptions::default().requests });
        let source = ConfigServer::new(Catalogue::default().open(), options);
        source.apply(&change(true, (0..resources).map(|number| resource(number, 0)).collect()));
        let mut options = xds::default_options();
        options.new_streams.burst = 1_000_000;
        let services = mcp::mount(Routes::default(), &source, &options);
        let services = xds::mount(services, &source, &options);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(listen(listener, services, CancellationToken::new()));
        Self { source, address, changes: 0 }
    }

    /// Changes one resource.
    pub(crate) fn change_one(&mut self) {
        self.changes += 1;
        self.source.apply(&change(false, vec![resource(self.changes % 100, self.changes)]));
    }
}

fn change(full: bool, resources: Vec<Arc<RawResource>>) -> RawChange {
    RawChange { collection: COLLECTION.into(), version: String::new(), full, resources, removed: Vec::new() }
}

fn resource(number: u32, version: u32) -> Arc<RawResource> {
    let mut value = vec![0x12; BODY];
    value[..4].copy_from_slice(&version.to_be_bytes());
    Arc::new(RawResource {
        name: format!("namespace-{}/rule-{number:06}", number % 100),
        body: Any {
            type_url: "type.googleapis.com/istio.policy.v1beta1.Rule".to_owned(),
            value: value.into(),
        },
        ..RawResource::default()
    })
}
