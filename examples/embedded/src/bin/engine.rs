//! Decides about requests by a configuration, without a server. `cargo run -p embedded --bin engine /admin`

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use mixer_adapter_config::{Apply as _, Change, Update, parse};
use mixer_adapter_engine::{
    Controller, Mixer,
    build::{BuildOptions, Connector},
    dispatch::Request,
    remote,
};
use mixer_adapter_host::handler::Caller;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let host = embedded::host()?;
    let (remote, closing) = (remote::Options::default(), host.closing().clone());
    let connector = Arc::new(Connector { host: host.clone(), remote, closing });
    let mixer = Arc::new(Mixer::new());
    let mut controller = Controller::new(mixer.clone(), host.clone(), connector, BuildOptions::default());

    // The configuration: all of it or nothing.
    let parsed = parse(include_str!("../../sample.yaml"), "sample.yaml", "istio-system");
    let changes = Change::full_sets(parsed.resources);
    let update = Update { source: "sample.yaml".into(), changes, faults: parsed.faults };
    controller.apply(update).await.map_err(|faults| anyhow::anyhow!("{faults:?}"))?;

    // A request: its attributes, and the answer of the rules.
    let snapshot = mixer.snapshot().context("no configuration")?;
    let mut attributes = snapshot.bag();
    attributes.insert("request.url_path", std::env::args().nth(1).unwrap_or_default());
    let answer = Request::new(&snapshot, attributes, &Caller::default()).answer().await?;
    println!("{} {}", answer.status.code, answer.status.message);

    drop(snapshot);
    mixer.close();
    host.close(Duration::from_secs(5)).await;
    Ok(())
}
