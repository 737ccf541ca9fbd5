//! An engine whose rules read attributes of every type, and whose adapter is not there: what it would be sent is made,
//! and its answer is empty.

use std::{pin::Pin, sync::LazyLock};

use base64::Engine as _;
use bytes::Bytes;
use mixer_adapter::{template::STANDARD, tonic::Status};
use mixer_adapter_config::{ConfigSet, ValidationError, parse};
use mixer_adapter_core::framework::dynamic::DynamicTemplate;
use mixer_adapter_engine::{
    HandlerBackend, Mixer,
    build::{BoxBackend, BuildOptions, Connect, HandlerSpec, SnapshotBuilder},
    dispatch::Caller,
};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Closing, TableLimits},
};
use tokio::runtime::Runtime;

pub(crate) static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
});

pub(crate) static MIXER: LazyLock<Mixer> = LazyLock::new(|| RUNTIME.block_on(mixer()));

pub(crate) async fn mixer() -> Mixer {
    built(RULES, &Nowhere, &BuildOptions::default()).await
}

/// A Mixer with these rules and some standard templates.
pub(crate) async fn built(rules: &str, connect: &dyn Connect, options: &BuildOptions) -> Mixer {
    let runtime = tokio::runtime::Handle::current();
    let adapters = Adapters::builder(runtime.clone()).build().unwrap();
    let host = Host::new(adapters, TableLimits::default(), Closing::on(runtime));
    let mut text = rules.to_owned();
    for name in ["listentry", "logentry", "quota"] {
        let (_, descriptor) = STANDARD.iter().find(|(known, _)| *known == name).unwrap();
        let descriptor = base64::engine::general_purpose::STANDARD.encode(descriptor);
        text += &format!(
            "---\nkind: template\nmetadata: {{name: {name}, namespace: istio-system}}\nspec: {{descriptor: {descriptor}}}\n"
        );
    }
    let (set, faults) = ConfigSet::of(parse(&text, "rules.yaml", "istio-system").resources);
    let built = SnapshotBuilder::new(&set, faults, &host).build(None, connect, options).await;
    let mixer = Mixer::new();
    mixer.replace(
        built.map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap().0,
    );
    mixer
}

const RULES: &str = r#"
kind: adapter
metadata: {name: nowhere, namespace: istio-system}
spec: {templates: [listentry, logentry, quota]}
---
kind: handler
metadata: {name: h, namespace: istio-system}
spec: {adapter: nowhere, connection: {address: "nowhere:1"}}
---
kind: instance
metadata: {name: entry, namespace: istio-system}
spec: {template: listentry, params: {value: 'request.headers["x"] | request.path | "none"'}}
---
kind: instance
metadata: {name: address, namespace: istio-system}
spec: {template: listentry, params: {value: 'source.ip | ip("10.0.0.1")'}}
---
kind: instance
metadata: {name: log, namespace: istio-system}
spec:
  template: logentry
  params:
    severity: '"info"'
    timestamp: request.time | timestamp("2019-05-06T07:08:09Z")
    variables: {took: 'response.duration | "1s"', code: response.code | 0, secure: connection.mtls | false}
---
kind: instance
metadata: {name: requests, namespace: istio-system}
spec: {template: quota, params: {dimensions: {path: request.path | "none"}}}
---
kind: rule
metadata: {name: all, namespace: istio-system}
spec: {actions: [{handler: h, instances: [entry, address, log, requests]}]}
---
kind: rule
metadata: {name: some, namespace: here}
spec:
  match: request.headers["x"] == "here" || source.ip == ip("10.0.0.1") || (request.path | "").startsWith("/x")
  actions: [{handler: h.istio-system, instances: [entry.istio-system, requests.istio-system]}]
"#;

/// Connects to nothing.
pub(crate) struct Nowhere;

impl Connect for Nowhere {
    fn connect<'a>(
        &'a self,
        _: &'a HandlerSpec,
    ) -> Pin<Box<dyn Future<Output = Result<BoxBackend, Vec<ValidationError>>> + Send + 'a>> {
        Box::pin(std::future::ready(Ok(Box::new(Empty) as BoxBackend)))
    }
}

struct Empty;

impl HandlerBackend for Empty {
    fn call<'a>(
        &'a self,
        _: &'a DynamicTemplate,
        _: Bytes,
        _: &'a Caller,
    ) -> Pin<Box<dyn Future<Output = Result<Bytes, Status>> + Send + 'a>> {
        Box::pin(std::future::ready(Ok(Bytes::new())))
    }

    fn adapter_config(&self) -> Option<Bytes> {
        None
    }
}
