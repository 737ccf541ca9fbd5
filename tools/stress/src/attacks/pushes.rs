//! Configuration that a server of configuration pushes.

use std::{fmt::Write as _, time::Duration};

use anyhow::Context as _;
use mixer_adapter_streams::proto::istio::mcp::v1alpha1::{RequestResources, Resource, Resources};
use prost::Message as _;
use tokio::task::JoinSet;

use super::Expectation;
use crate::{
    client::{Client, framed},
    server::Addresses,
    source::OPTIONAL_COLLECTION,
};

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

/// Pushes of resources without content, which have two bytes each: few enough for the memory for pushes, and too many.
pub(super) async fn empty_resources(addresses: Addresses, sent: &mut u64) -> anyhow::Result<Expectation> {
    const PUSH: &str = "/istio.mcp.v1alpha1.ResourceSink/EstablishResourceStream";
    let push = Resources { collection: OPTIONAL_COLLECTION.to_owned(), ..Resources::default() };
    let resources =
        Resources { resources: vec![Resource::default()], ..Resources::default() }.encode_to_vec();
    let frames =
        [300_000, 4_000_000].map(|count| framed(&[push.encode_to_vec(), resources.repeat(count)].concat()));
    let mut calls = JoinSet::new();
    loop {
        while calls.len() < 16 {
            let client = Client::connect(addresses.mcp).await?;
            for frame in frames.iter().cycle().take(4) {
                *sent += frame.len() as u64;
                let (client, frame) = (client.clone(), frame.clone());
                calls.spawn(async move { client.send::<RequestResources>(PUSH, frame).await });
            }
        }
        // Whether it is refused or ended, the next one follows.
        let _ = calls.join_next().await;
    }
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
