//! Configuration that a server of configuration pushes.

use std::{fmt::Write as _, net::SocketAddr, time::Duration};

use anyhow::{Context as _, anyhow};
use mixer_adapter_config::{
    mcp::source as mcp,
    stream::{
        listen,
        source::{Catalogue, ConfigServer, ConfigServerOptions},
    },
    xds::source as xds,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::Expectation;
use crate::server::Addresses;

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

/// The configuration of honest checks: that of a server without a source.
const HONEST: &str = include_str!("../../../../adapters/config/sample.yaml");

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

    /// Returns the arguments with which a server follows it.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let url = match self.protocol {
            Protocol::Mcp => format!("mcp://{}", self.address),
            Protocol::Xds => format!("xds+delta://{}", self.address),
        };
        ["--config", &url, "--config-optional", "attributemanifests,templates,adapters"]
            .map(str::to_owned)
            .into()
    }

    /// Pushes resources beside those of honest checks.
    fn push(&self, more: &str) -> anyhow::Result<()> {
        let pushed = self.server.serve_text(&format!("{HONEST}{more}"));
        pushed.map_err(|faults| anyhow!("the source refuses its configuration: {:?}", faults.first()))
    }
}

/// Pushes one text after the other.
async fn push_all(
    addresses: Addresses,
    sent: &mut u64,
    text: impl Fn(usize) -> Result<String, std::fmt::Error>,
) -> anyhow::Result<Expectation> {
    let source = addresses.source.context("an attack by pushes needs a source")?;
    for round in 0.. {
        let (source, text) = (source.clone(), text(round)?);
        *sent += text.len() as u64;
        tokio::task::spawn_blocking(move || source.push(&text)).await??;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(Expectation::Met)
}

/// The time between two pushes.
const PAUSE: Duration = Duration::from_millis(100);

/// 300 rules with handlers and instances of their own, which are all others with each push.
pub(super) async fn changing_rules(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    push_all(addresses, sent, |round| {
        let mut text = String::new();
        for index in 0..300 {
            let name = format!("n{index}-{round}");
            write!(
                text,
                "---
apiVersion: config.istio.io/v1alpha2
kind: handler
metadata: {{name: {name}, namespace: istio-system}}
spec: {{compiledAdapter: listchecker, params: {{overrides: [/never-{name}], blacklist: true}}}}
---
apiVersion: config.istio.io/v1alpha2
kind: instance
metadata: {{name: {name}, namespace: istio-system}}
spec: {{compiledTemplate: listentry, params: {{value: request.path | \"{name}\"}}}}
---
apiVersion: config.istio.io/v1alpha2
kind: rule
metadata: {{name: {name}, namespace: istio-system}}
spec: {{match: source.name == \"{name}\", actions: [{{handler: {name}, instances: [{name}]}}]}}
"
            )?;
        }
        Ok(text)
    })
    .await
}

/// 2,000 instances of 5 kB, which are all others with each push.
pub(super) async fn large_instances(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    push_all(addresses, sent, |round| {
        let mut text = String::new();
        for index in 0..2_000 {
            write!(
                text,
                "---
apiVersion: config.istio.io/v1alpha2
kind: instance
metadata: {{name: large{index}, namespace: istio-system}}
spec: {{compiledTemplate: listentry, params: {{value: '\"{}{round}\"'}}}}
",
                "x".repeat(5_000)
            )?;
        }
        Ok(text)
    })
    .await
}
