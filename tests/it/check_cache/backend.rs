//! An adapter whose answers are determined by the value of its instance and by the script of a test.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use mixer_adapter::{
    prost::Message as _,
    template::STANDARD,
    tonic::{Code, Status},
};
use mixer_adapter_config::{ConfigSet, ValidationError, parse};
use mixer_adapter_core::{
    framework::dynamic::DynamicTemplate,
    proto::{CheckResult, Status as RpcStatus},
};
use mixer_adapter_engine::{
    CacheLimits, HandlerBackend, Mixer, Snapshot,
    attribute::StringMap,
    build::{BoxBackend, BuildOptions, Connect, HandlerSpec, SnapshotBuilder},
    dispatch::{CacheUse, Caller, CheckAnswer, DispatchError, Request},
};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Closing, TableLimits},
};
use tokio::time::Instant;

/// The templates of the adapter.
const TEMPLATES: [&str; 3] = ["listentry", "kubernetes", "quota"];

/// What the adapter does, as a test changes it.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) calls: AtomicUsize,
    /// The errors of calls by handler.
    errors: Mutex<BTreeMap<&'static str, Code>>,
    /// The handlers that deny everything.
    denying: Mutex<BTreeSet<&'static str>>,
    /// Uses of an answer; unlimited by default.
    pub(crate) uses: Mutex<BTreeMap<&'static str, i32>>,
    /// The validity of an answer; by default as many seconds as its value has bytes.
    pub(crate) seconds: Mutex<Option<i64>>,
    pub(crate) delay: Mutex<Duration>,
}

impl Script {
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }

    /// Lets the calls of the handler `h` fail.
    pub(crate) fn fail(&self, code: impl Into<Option<Code>>) {
        self.fail_handler("h", code);
    }

    pub(crate) fn fail_handler(&self, handler: &'static str, code: impl Into<Option<Code>>) {
        let mut errors = self.errors.lock().unwrap();
        match code.into() {
            Some(code) => errors.insert(handler, code),
            None => errors.remove(handler),
        };
    }

    /// Lets a handler deny everything.
    pub(crate) fn deny(&self, handler: &'static str) {
        self.denying.lock().unwrap().insert(handler);
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct ListEntryRequest {
    #[prost(message, optional, tag = "1")]
    instance: Option<ListEntry>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ListEntry {
    #[prost(message, optional, tag = "1")]
    value: Option<Value>,
}

/// `istio.policy.v1beta1.Value` with a string.
#[derive(Clone, PartialEq, prost::Message)]
struct Value {
    #[prost(string, tag = "1")]
    string_value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct GenerateRequest {
    #[prost(message, optional, tag = "1")]
    instance: Option<Pods>,
}

/// An instance of the template `kubernetes`, as far as the tests use it.
#[derive(Clone, PartialEq, prost::Message)]
struct Pods {
    #[prost(string, tag = "1")]
    source_uid: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct PodAttributes {
    #[prost(string, tag = "25")]
    source_owner: String,
    #[prost(btree_map = "string, string", tag = "3")]
    source_labels: BTreeMap<String, String>,
    #[prost(string, tag = "11")]
    destination_namespace: String,
}

/// The attributes of a pod `APP.NAMESPACE`: its application is the owner and a label.
fn pod_attributes(request: Bytes) -> PodAttributes {
    let uid = GenerateRequest::decode(request).unwrap().instance.unwrap().source_uid;
    let (app, namespace) = uid.split_once('.').unwrap_or((&uid, ""));
    PodAttributes {
        source_owner: app.to_owned(),
        source_labels: BTreeMap::from([("app".to_owned(), app.to_owned())]),
        destination_namespace: namespace.to_owned(),
    }
}

/// Connects handlers to the adapter.
struct Connector(Arc<Script>);

/// A handler of the adapter.
struct Backend {
    /// The name of the handler without its namespace.
    handler: String,
    script: Arc<Script>,
}

impl Connect for Connector {
    fn connect<'a>(
        &'a self,
        spec: &'a HandlerSpec,
    ) -> Pin<Box<dyn Future<Output = Result<BoxBackend, Vec<ValidationError>>> + Send + 'a>> {
        let handler = spec.name.name().to_owned();
        let backend = Backend { handler, script: self.0.clone() };
        Box::pin(std::future::ready(Ok(Box::new(backend) as BoxBackend)))
    }
}

impl HandlerBackend for Backend {
    /// Denies values with "bad" in them.
    fn call<'a>(
        &'a self,
        template: &'a DynamicTemplate,
        request: Bytes,
        caller: &'a Caller,
    ) -> Pin<Box<dyn Future<Output = Result<Bytes, Status>> + Send + 'a>> {
        Box::pin(async move {
            let deadline = caller.deadline;
            let script = &*self.script;
            script.calls.fetch_add(1, SeqCst);
            let delay = *script.delay.lock().unwrap();
            let late = deadline.is_some_and(|deadline| deadline < Instant::now() + delay);
            match deadline {
                Some(deadline) if late => {
                    tokio::time::sleep_until(deadline).await;
                    return Err(Status::deadline_exceeded("too late"));
                }
                _ => tokio::time::sleep(delay).await,
            }
            if let Some(code) = script.errors.lock().unwrap().get(&*self.handler) {
                return Err(Status::new(*code, "broken"));
            }
            if template.name() == "kubernetes" {
                return Ok(pod_attributes(request).encode_to_vec().into());
            }
            let entry = ListEntryRequest::decode(request).unwrap().instance.unwrap();
            let value = entry.value.unwrap().string_value;
            let is_denied = value.contains("bad") || script.denying.lock().unwrap().contains(&*self.handler);
            let code = if is_denied { Code::PermissionDenied } else { Code::Ok };
            let seconds = script.seconds.lock().unwrap().unwrap_or(value.len() as i64);
            let result = CheckResult {
                status: Some(RpcStatus { code: code as i32, message: value, details: Vec::new() }),
                valid_duration: Some(prost_types::Duration { seconds, nanos: 0 }),
                valid_use_count: script.uses.lock().unwrap().get(&*self.handler).copied().unwrap_or(-1),
            };
            Ok(result.encode_to_vec().into())
        })
    }

    fn adapter_config(&self) -> Option<Bytes> {
        None
    }

    fn answers_from_memory(&self) -> bool {
        self.handler == "memory"
    }
}

pub(crate) const CACHE: CacheLimits = CacheLimits::new(usize::MAX, 1 << 20);

/// The attributes, handlers and templates of the rules of the tests.
const COMMON: &str = r#"
kind: attributemanifest
metadata: {name: attributes, namespace: istio-system}
spec:
  attributes:
    request.path: {valueType: STRING}
    request.method: {valueType: STRING}
    request.headers: {valueType: STRING_MAP}
    destination.namespace: {valueType: STRING}
    source.uid: {valueType: STRING}
    source.owner: {valueType: STRING}
    source.labels: {valueType: STRING_MAP}
---
kind: adapter
metadata: {name: scripted, namespace: istio-system}
spec: {templates: [listentry, kubernetes, quota]}
---
kind: handler
metadata: {name: h, namespace: istio-system}
spec: {adapter: scripted, connection: {address: "scripted:1"}}
---
kind: handler
metadata: {name: other, namespace: istio-system}
spec: {adapter: scripted, connection: {address: "scripted:1"}}
---
kind: handler
metadata: {name: memory, namespace: istio-system}
spec: {adapter: scripted, connection: {address: "scripted:1"}}
---
"#;

fn template(name: &str) -> String {
    let (_, descriptor) = STANDARD.iter().find(|(known, _)| *known == name).unwrap();
    format!(
        "---\nkind: template\nmetadata: {{name: {name}, namespace: istio-system}}\nspec: {{descriptor: {}}}\n",
        BASE64.encode(descriptor)
    )
}

/// A server's engine with a scripted adapter.
pub(crate) struct Subject {
    pub(crate) mixer: Mixer,
    pub(crate) script: Arc<Script>,
    pub(crate) options: BuildOptions,
}

impl Subject {
    pub(crate) async fn start(rules: &str, options: BuildOptions) -> Self {
        let subject = Self { mixer: Mixer::new(), script: Arc::default(), options };
        subject.configure(rules).await;
        subject
    }

    /// An engine with a cache.
    pub(crate) async fn cached(rules: &str) -> Self {
        let mut options = BuildOptions::default();
        options.strict_check_cache = CACHE;
        Self::start(rules, options).await
    }

    pub(crate) async fn configure(&self, rules: &str) {
        self.try_configure(rules).await.unwrap();
    }

    pub(crate) async fn try_configure(&self, rules: &str) -> Result<(), Vec<String>> {
        let runtime = tokio::runtime::Handle::current();
        let adapters = Adapters::builder(runtime.clone()).build().unwrap();
        let host = Host::new(adapters, TableLimits::default(), Closing::on(runtime));
        // First, so that lines in faults are those of the rules.
        let mut resources = parse(rules, "rules.yaml", "istio-system").resources;
        let templates = TEMPLATES.map(template).concat();
        resources.extend(parse(&(COMMON.to_owned() + &templates), "common.yaml", "istio-system").resources);
        let (set, faults) = ConfigSet::of(resources);
        let former = self.mixer.snapshot();
        let backend = Connector(self.script.clone());
        let builder = SnapshotBuilder::new(&set, faults, &host);
        match builder.build(former.as_deref(), &backend, &self.options).await {
            Ok((snapshot, _)) => self.mixer.replace(snapshot),
            Err(faults) => return Err(faults.iter().map(ToString::to_string).collect()),
        }
        Ok(())
    }

    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.mixer.snapshot().unwrap()
    }

    pub(crate) async fn check(&self, attributes: &Attributes) -> Result<CheckAnswer, DispatchError> {
        self.check_until(attributes, None).await.0
    }

    /// Checks a request as one of Envoy.
    pub(crate) async fn check_until(
        &self,
        attributes: &Attributes,
        deadline: Option<Instant>,
    ) -> (Result<CheckAnswer, DispatchError>, Option<CacheUse>) {
        Self::check_in(self.snapshot(), attributes, deadline).await
    }

    /// Checks a request in a configuration, which need not be the current one.
    pub(crate) async fn check_in(
        snapshot: Arc<Snapshot>,
        attributes: &Attributes,
        deadline: Option<Instant>,
    ) -> (Result<CheckAnswer, DispatchError>, Option<CacheUse>) {
        let mut bag = snapshot.bag();
        bag.insert("request.path", attributes.path);
        let texts = [
            ("destination.namespace", attributes.namespace),
            ("request.method", attributes.method),
            ("source.uid", attributes.uid),
            ("source.owner", attributes.owner),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                bag.insert(name, text);
            }
        }
        for (name, map) in [("request.headers", &attributes.headers), ("source.labels", &attributes.labels)] {
            if let Some(map) = map {
                bag.insert(name, map.iter().copied().collect::<StringMap>());
            }
        }
        let caller = Caller { deadline, ..Caller::default() };
        let mut request = Request::new(&snapshot, bag, &caller).strict();
        let answer = request.answer().await;
        (answer, request.cache_use().cloned())
    }
}

/// The attributes of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes {
    pub(crate) path: &'static str,
    pub(crate) namespace: Option<&'static str>,
    pub(crate) method: Option<&'static str>,
    pub(crate) headers: Option<Vec<(&'static str, &'static str)>>,
    /// A pod as `APP.NAMESPACE`.
    pub(crate) uid: Option<&'static str>,
    pub(crate) owner: Option<&'static str>,
    pub(crate) labels: Option<Vec<(&'static str, &'static str)>>,
}

pub(crate) fn path(path: &'static str) -> Attributes {
    Attributes { path, namespace: Some("shop"), ..Attributes::default() }
}
