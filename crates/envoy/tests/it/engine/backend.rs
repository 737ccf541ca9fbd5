//! An engine with an adapter that answers as a test says and remembers its calls.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use bytes::Bytes;
use mixer_adapter_config::{ConfigSet, ValidationError, parse};
use mixer_adapter_core::{
    framework::dynamic::DynamicTemplate,
    proto::{
        CheckResult, QuotaRequest, QuotaResult, Status as DeniedStatus,
        istio::mixer::adapter::model::v1beta1::quota_result,
    },
};
use mixer_adapter_engine::{
    HandlerBackend, Mixer, Snapshot,
    build::{BoxBackend, BuildOptions, Connect, HandlerSpec, SnapshotBuilder},
    dispatch::{Caller, FailurePolicy},
};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Closing, TableLimits},
};
use mixer_adapter_templates::STANDARD;
use prost::Message as _;
use tokio::{runtime::Handle, time::Instant};
use tonic::Status;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

pub(crate) const RELEASE: &str = "release";

/// What the adapter does, by the full name of a quota or the name of another template.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// How long calls take; those that give back a quota have the name [`RELEASE`].
    delays: Mutex<BTreeMap<String, Duration>>,
    /// The quotas that grant nothing.
    exhausted: Mutex<Vec<String>>,
    /// The quotas of which nothing is taken back.
    kept: Mutex<Vec<String>>,
    /// The completed calls: the name, and the amount or the number of instances.
    calls: Mutex<Vec<(String, i64)>>,
    /// Each open handler has a clone.
    open: Arc<()>,
}

impl Script {
    /// Returns the number of open handlers.
    pub(crate) fn open_handlers(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }

    pub(crate) fn delay(&self, name: &str, delay: Duration) {
        self.delays.lock().unwrap().insert(name.to_owned(), delay);
    }

    pub(crate) fn exhaust(&self, name: &str) {
        self.exhausted.lock().unwrap().push(name.to_owned());
    }

    pub(crate) fn take_nothing_back(&self, name: &str) {
        self.kept.lock().unwrap().push(name.to_owned());
    }

    /// Returns the completed calls of a quota or a template.
    pub(crate) fn calls(&self, name: &str) -> Vec<i64> {
        let calls = self.calls.lock().unwrap();
        calls.iter().filter(|(called, _)| called == name).map(|(_, amount)| *amount).collect()
    }

    /// Waits as long as a call takes, but not past the deadline of its caller.
    async fn pass(&self, name: &str, caller: &Caller) -> Result<(), Status> {
        let delay = self.delays.lock().unwrap().get(name).copied().unwrap_or_default();
        let end = Instant::now() + delay;
        match caller.deadline {
            Some(deadline) if deadline < end => {
                tokio::time::sleep_until(deadline).await;
                Err(Status::deadline_exceeded("too late"))
            }
            _ => {
                tokio::time::sleep_until(end).await;
                Ok(())
            }
        }
    }

    fn completed(&self, name: &str, amount: i64) {
        self.calls.lock().unwrap().push((name.to_owned(), amount));
    }
}

#[derive(Clone, PartialEq, prost::Message)]
struct QuotaCall {
    #[prost(message, optional, tag = "4")]
    quotas: Option<QuotaRequest>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ReportCall {
    #[prost(bytes = "vec", repeated, tag = "1")]
    instances: Vec<Vec<u8>>,
}

/// The backend of a handler, which fails if its name begins with `broken`, and denies at once if it begins with `denying`.
#[derive(Clone)]
struct Backend {
    script: Arc<Script>,
    is_broken: bool,
    is_denying: bool,
    /// `None` for what connects handlers.
    _open: Option<Arc<()>>,
}

impl Connect for Backend {
    fn connect<'a>(
        &'a self,
        spec: &'a HandlerSpec,
    ) -> BoxFuture<'a, Result<BoxBackend, Vec<ValidationError>>> {
        let script = self.script.clone();
        let _open = Some(script.open.clone());
        let name = spec.name.name();
        let (is_broken, is_denying) = (name.starts_with("broken"), name.starts_with("denying"));
        let backend = Self { script, is_broken, is_denying, _open };
        Box::pin(std::future::ready(Ok(Box::new(backend) as BoxBackend)))
    }
}

impl HandlerBackend for Backend {
    fn call<'a>(
        &'a self,
        template: &'a DynamicTemplate,
        request: Bytes,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<Bytes, Status>> {
        Box::pin(async move {
            let script = &*self.script;
            if self.is_broken {
                return Err(Status::unavailable("broken"));
            }
            if self.is_denying {
                let status =
                    Some(DeniedStatus { code: 7, message: "closed".to_owned(), details: Vec::new() });
                return Ok(CheckResult { status, ..CheckResult::default() }.encode_to_vec().into());
            }
            if template.name() != "quota" {
                script.pass(template.name(), caller).await?;
                let instances = ReportCall::decode(request).unwrap().instances.len();
                script.completed(template.name(), instances as i64);
                return Ok(Bytes::new());
            }
            let quotas = QuotaCall::decode(request).unwrap().quotas.unwrap().quotas;
            let (name, params) = quotas.into_iter().next().unwrap();
            script.pass(if params.amount < 0 { RELEASE } else { &name }, caller).await?;
            script.completed(&name, params.amount);
            let refusing = if params.amount < 0 { &script.kept } else { &script.exhausted };
            let granted = if refusing.lock().unwrap().contains(&name) { 0 } else { params.amount.abs() };
            let result = quota_result::Result { granted_amount: granted, ..quota_result::Result::default() };
            Ok(QuotaResult { quotas: [(name, result)].into() }.encode_to_vec().into())
        })
    }

    fn adapter_config(&self) -> Option<Bytes> {
        None
    }
}

/// The adapter and its handlers: `h`; `broken`, which fails; and `denying`.
const HANDLER: &str = r#"
kind: adapter
metadata: {name: scripted, namespace: istio-system}
spec: {templates: [quota, logentry, kubernetes, checknothing, listentry]}
---
kind: handler
metadata: {name: h, namespace: istio-system}
spec: {adapter: scripted, connection: {address: "scripted:1"}}
---
kind: handler
metadata: {name: broken, namespace: istio-system}
spec: {adapter: scripted, connection: {address: "scripted:2"}}
---
kind: handler
metadata: {name: denying, namespace: istio-system}
spec: {adapter: scripted, connection: {address: "scripted:3"}}
"#;

/// Returns an engine with rules for the handlers `h` and `broken`, and the script of its adapter.
pub(crate) async fn engine(rules: &str) -> (Arc<Mixer>, Arc<Script>) {
    let (mixer, script) = (Arc::new(Mixer::new()), Arc::<Script>::default());
    mixer.replace(snapshot(rules, &script).await);
    (mixer, script)
}

/// Returns a configuration with rules, which shares no handler with another one.
pub(crate) async fn snapshot(rules: &str, script: &Arc<Script>) -> Snapshot {
    snapshot_with(rules, script, FailurePolicy::default()).await
}

/// Returns a configuration with rules and a failure policy.
pub(crate) async fn snapshot_with(rules: &str, script: &Arc<Script>, policy: FailurePolicy) -> Snapshot {
    let runtime = Handle::current();
    let adapters = Adapters::builder(runtime.clone()).build().unwrap();
    let host = Host::new(adapters, TableLimits::default(), Closing::on(runtime));
    let templates = STANDARD.iter().map(|(name, descriptor)| {
        let descriptor = BASE64.encode(descriptor);
        format!("---\nkind: template\nmetadata: {{name: {name}, namespace: istio-system}}\nspec: {{descriptor: {descriptor}}}\n")
    });
    let common = HANDLER.to_owned() + &templates.collect::<String>();
    let mut resources = parse(rules, "rules.yaml", "istio-system").resources;
    resources.extend(parse(&common, "common.yaml", "istio-system").resources);
    let (set, faults) = ConfigSet::of(resources);
    let builder = SnapshotBuilder::new(&set, faults, &host);
    let connect = Backend { script: script.clone(), is_broken: false, is_denying: false, _open: None };
    let mut options = BuildOptions::default();
    options.policy = policy;
    let built = builder.build(None, &connect, &options).await;
    built.unwrap_or_else(|faults| panic!("{faults:?}")).0
}
