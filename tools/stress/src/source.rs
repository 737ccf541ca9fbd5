//! The source of configuration that the attacked server follows.

use std::net::SocketAddr;

use anyhow::anyhow;
use mixer_adapter_streams::{
    mcp::source as mcp,
    stream::{
        listen,
        source::{Catalogue, ConfigServer, ConfigServerOptions},
    },
    xds::source as xds,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// A server of configuration.
#[derive(Debug)]
pub(crate) struct Source {
    server: ConfigServer,
    address: SocketAddr,
    protocol: Protocol,
}

/// How the attacked server connects to its source.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Protocol {
    Mcp,
    Xds,
}

/// The collection that the attacked server takes from anybody who connects.
pub(crate) const OPTIONAL_COLLECTION: &str = "istio/config/v1alpha2/templates";

/// The configuration of honest checks: that of a server without a source.
const HONEST: &str = include_str!("../../../adapters/config/sample.yaml");

impl Source {
    /// Serves the configuration of honest checks on a free port.
    pub(crate) async fn start(protocol: Protocol) -> anyhow::Result<Self> {
        let server = ConfigServer::new(Catalogue::default().open(), ConfigServerOptions::default());
        let services = mcp::mount(Default::default(), &server, &mcp::default_options());
        let services = xds::mount(services, &server, &xds::default_options());
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(listen(listener, services, CancellationToken::new()));
        let source = Self { server, address, protocol };
        source.push("")?;
        Ok(source)
    }

    /// Returns the arguments with which a server follows it, and takes [`OPTIONAL_COLLECTION`] at an address.
    pub(crate) fn arguments(&self, mcp: SocketAddr) -> Vec<String> {
        let url = match self.protocol {
            Protocol::Mcp => format!("mcp://{}", self.address),
            Protocol::Xds => format!("xds+delta://{}", self.address),
        };
        let listen = format!("{mcp}?collections={OPTIONAL_COLLECTION}");
        let optional = "attributemanifests,templates,adapters";
        ["--config", &url, "--mcp-listen", &listen, "--config-optional", optional].map(str::to_owned).into()
    }

    /// Pushes resources beside those of honest checks.
    pub(crate) fn push(&self, more: &str) -> anyhow::Result<()> {
        let pushed = self.server.serve_text(&format!("{HONEST}{more}"));
        pushed.map_err(|faults| anyhow!("the source refuses its configuration: {:?}", faults.first()))
    }
}
