//! Configuration that a server of configuration pushes.

use std::{fmt::Write as _, time::Duration};

use anyhow::Context as _;

use super::Expectation;
use crate::server::Addresses;

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
