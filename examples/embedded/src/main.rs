//! Serves the routes of axum and the adapter on one port of tonic. `cargo run -p embedded --bin embedded`

use std::time::Duration;

use tokio::{net::TcpListener, signal::ctrl_c};
use tonic::transport::{Server, server::TcpIncoming};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let host = embedded::host()?;
    let listener = TcpListener::bind("127.0.0.1:9091").await?;
    println!("http://{0}/hello, and gRPC on {0}", listener.local_addr()?);
    Server::builder()
        .accept_http1(true)
        .add_routes(embedded::app(host.clone()).into())
        .serve_with_incoming_shutdown(TcpIncoming::from(listener), async {
            ctrl_c().await.unwrap_or_default()
        })
        .await?;
    host.close(Duration::from_secs(5)).await;
    Ok(())
}
