//! Our server with one rule for each service.

use std::{net::SocketAddr, sync::Arc};

use mixer_adapter::service::{Server, ServerOptions, Workers};
use mixer_adapter_config::{ConfigSet, parse};
use mixer_adapter_engine::{
    CacheLimits, CachedChecks, Mixer,
    build::{BuildOptions, Connector, SnapshotBuilder},
    remote,
};
use mixer_adapter_envoy::{Options, Services};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Closing, TableLimits},
};
use mixer_adapters::{list::List, memquota::MemQuota, noop::Noop};
use tokio_util::sync::CancellationToken;

/// Whether answers to checks are cached.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cache {
    On,
    Off,
}

const RULES: &str = r#"
kind: handler
metadata: {name: paths}
spec: {compiledAdapter: listchecker, params: {overrides: [/admin], blacklist: true}}
---
kind: handler
metadata: {name: quotas}
spec:
  compiledAdapter: memquota
  params: {quotas: [{name: requests.instance.istio-system, maxAmount: 1000000000, validDuration: 1s}]}
---
kind: handler
metadata: {name: logs}
spec: {compiledAdapter: noop}
---
kind: instance
metadata: {name: path}
spec: {compiledTemplate: listentry, params: {value: request.url_path}}
---
kind: instance
metadata: {name: requests}
spec: {compiledTemplate: quota, params: {dimensions: {user: 'ratelimit.descriptor["user"] | "nobody"'}}}
---
kind: instance
metadata: {name: access}
spec:
  compiledTemplate: logentry
  params:
    severity: '"info"'
    timestamp: request.time
    variables: {path: request.path, code: response.code | 0, user: 'source.principal | "nobody"'}
---
kind: rule
metadata: {name: paths}
spec:
  match: request.method == "GET"
  actions: [{handler: paths, instances: [path]}]
---
kind: rule
metadata: {name: quotas}
spec: {actions: [{handler: quotas, instances: [requests]}]}
---
kind: rule
metadata: {name: logs}
spec: {actions: [{handler: logs, instances: [access]}]}
"#;

/// Creates the services and the host of their adapters.
pub(super) async fn services(cache: Cache) -> (Arc<Services>, Arc<Host>) {
    let runtime = tokio::runtime::Handle::current();
    let adapters = Adapters::builder(runtime.clone()).add::<Noop>().add::<List>().add::<MemQuota>();
    let adapters = adapters.build().expect("the adapters fit together");
    let host = Arc::new(Host::new(adapters, TableLimits::default(), Closing::on(runtime.clone())));
    let mixer = Arc::new(mixer(&host, cache).await);
    (Arc::new(Services::new(mixer, Options::default(), &runtime)), host)
}

pub(super) async fn serve(cache: Cache, address: tokio::sync::oneshot::Sender<SocketAddr>) {
    let (services, host) = services(cache).await;
    let server = Server::new(host, ServerOptions::default()).envoy(services);
    let bound = server.bind(SocketAddr::from(([127, 0, 0, 1], 0)), None).await.expect("a free port");
    address
        .send(bound.grpc_address().ok().and_then(|bound| bound.tcp()).expect("bound"))
        .expect("somebody waits for it");
    bound.run(&Workers::here(), CancellationToken::new()).await.expect("the server runs");
}

async fn mixer(host: &Arc<Host>, cache: Cache) -> Mixer {
    let (set, faults) = ConfigSet::of(parse(RULES, "bench.yaml", "istio-system").resources);
    let connector = Connector {
        host: host.clone(),
        remote: remote::Options::default(),
        closing: Closing::on(tokio::runtime::Handle::current()),
    };
    let mut options = BuildOptions::default();
    if cache == Cache::On {
        options.strict_check_cache = CacheLimits::new(usize::MAX, 32 << 20);
        options.cached_checks = CachedChecks::All;
    }
    let built = SnapshotBuilder::new(&set, faults, host).build(None, &connector, &options).await;
    let mixer = Mixer::new();
    mixer.replace(built.map_err(|faults| format!("{faults:?}")).expect("a good configuration").0);
    mixer
}
