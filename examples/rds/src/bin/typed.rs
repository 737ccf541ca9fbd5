//! The same with messages of one's own: `cargo run -p rds --bin typed -- 127.0.0.1:18000`. The fields that are used, by their numbers in
//! Envoy's protos; a crate with all of Envoy's messages does as well.
#![allow(clippy::print_stderr, reason = "the address is for whoever starts the program")]

use mixer_adapter_streams::stream::{
    listen,
    source::{Catalogue, ConfigServer, ConfigServerOptions},
};
use mixer_adapter_streams::xds::source as xds;
use prost::{Message, Name};
use tokio::{io::AsyncBufReadExt as _, net::TcpListener};
use tokio_util::sync::CancellationToken;

#[derive(Clone, PartialEq, Message)]
struct RouteConfiguration {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    virtual_hosts: Vec<VirtualHost>,
}

impl Name for RouteConfiguration {
    const PACKAGE: &'static str = "envoy.config.route.v3";
    const NAME: &'static str = "RouteConfiguration";
}

#[derive(Clone, PartialEq, Message)]
struct VirtualHost {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, repeated, tag = "2")]
    domains: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    routes: Vec<Route>,
}

#[derive(Clone, PartialEq, Message)]
struct Route {
    #[prost(message, tag = "1")]
    r#match: Option<RouteMatch>,
    #[prost(message, tag = "2")]
    route: Option<RouteAction>,
}

#[derive(Clone, PartialEq, Message)]
struct RouteMatch {
    #[prost(string, tag = "1")]
    prefix: String,
}

#[derive(Clone, PartialEq, Message)]
struct RouteAction {
    #[prost(string, tag = "1")]
    cluster: String,
}

fn routes(prefix: &str, cluster: &str) -> RouteConfiguration {
    let matches = RouteMatch { prefix: prefix.to_owned() };
    let action = RouteAction { cluster: cluster.to_owned() };
    RouteConfiguration {
        name: "local_route".to_owned(),
        virtual_hosts: vec![VirtualHost {
            name: "local_service".to_owned(),
            domains: vec!["*".to_owned()],
            routes: vec![Route { r#match: Some(matches), route: Some(action) }],
        }],
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let server = ConfigServer::new(Catalogue::default().open(), ConfigServerOptions::default());
    let services = xds::mount(Default::default(), &server, &xds::default_options());
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:18000".to_owned());
    let listener = TcpListener::bind(address).await?;
    eprintln!("serving routes on {}", listener.local_addr()?);
    let serving = tokio::spawn(listen(listener, services, CancellationToken::new()));

    let mut clusters = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    while let Some(cluster) = clusters.next_line().await? {
        server.serve_messages([("local_route", routes("/", cluster.trim()))]);
    }
    Ok(serving.await?)
}
