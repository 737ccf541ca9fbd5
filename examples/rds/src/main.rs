//! A route discovery service: `cargo run -p rds --bin rds -- 127.0.0.1:18000`. Each line of standard input is a cluster, to which the routes lead
//! from then on.
#![allow(clippy::print_stderr, reason = "the address is for whoever starts the program")]

use anyhow::anyhow;
use mixer_adapter_streams::stream::{
    listen,
    source::{Catalogue, ConfigServer, ConfigServerOptions},
};
use mixer_adapter_streams::xds::source as xds;
use serde_json::{Value, json};
use tokio::{io::AsyncBufReadExt as _, net::TcpListener};
use tokio_util::sync::CancellationToken;

fn routes(prefix: &str, cluster: &str) -> Value {
    json!({
        "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        "name": "local_route",
        "virtual_hosts": [{
            "name": "local_service",
            "domains": ["*"],
            "routes": [{ "match": { "prefix": prefix }, "route": { "cluster": cluster } }],
        }],
    })
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
        let routes = routes("/", cluster.trim());
        server.serve_text(&routes.to_string()).map_err(|faults| anyhow!("{faults:?}"))?;
    }
    Ok(serving.await?)
}
