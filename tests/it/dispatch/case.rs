//! One recorded case: configuration, adapters, and calls with their outcome.

use std::{collections::BTreeMap, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mixer_adapter::{
    prost::Message as _,
    service::mixer::{check, report},
};
use mixer_adapter_core::framework::status::status_name;
use mixer_adapter_engine::{
    Mixer,
    build::{BuildOptions, SnapshotBuilder},
    proto::istio::mixer::v1::{CheckRequest, ReportRequest},
};
use mixer_adapter_host::{
    Host,
    handler::{Adapters, Caller, Closing, TableLimits},
};
use serde::Deserialize;

use super::{
    backend::{Backend, Backends},
    compare::{compare_captured, compare_response},
    config,
};

#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) id: String,
    config: Vec<String>,
    #[serde(default)]
    standard_templates: Vec<String>,
    default_config_namespace: String,
    backends: BTreeMap<String, Backend>,
    calls: Vec<Call>,
}

#[derive(Debug, Deserialize)]
struct Call {
    kind: String,
    request_b64: String,
    expect: Expect,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Expect {
    pub(crate) response: Option<serde_json::Value>,
    error: Option<ExpectedError>,
    pub(crate) captured: Vec<serde_json::Value>,
    #[serde(default)]
    pub(crate) instances_order: String,
}

#[derive(Debug, Deserialize)]
struct ExpectedError {
    code: String,
}

impl Case {
    pub(crate) fn all() -> Vec<Self> {
        let text = std::fs::read_to_string(config::data().join("cases.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Runs the case; every difference from what was recorded.
    pub(crate) async fn run(&self) -> Vec<String> {
        let backends = Backends { by_name: Arc::new(self.backends.clone()), captured: Arc::default() };
        let mixer = self.mixer(&backends).await;
        let mut differences = Vec::new();
        for (index, call) in self.calls.iter().enumerate() {
            let found = call.run(&mixer, &backends).await;
            differences
                .extend(found.into_iter().map(|difference| format!("call {}: {difference}", index + 1)));
        }
        differences
    }

    /// The adapters of the case, and an engine with its configuration.
    pub(crate) async fn engine(&self) -> Mixer {
        let backends = Backends { by_name: Arc::new(self.backends.clone()), captured: Arc::default() };
        self.mixer(&backends).await
    }

    async fn mixer(&self, backends: &Backends) -> Mixer {
        let names: Vec<String> = ["b1", "b2", "b3", "b4", "bg", "bg2", "dead"]
            .into_iter()
            .map(str::to_owned)
            .chain(self.backends.keys().cloned())
            .collect();
        let (set, faults) = config::resources(&self.config, &self.standard_templates, &names);
        let runtime = tokio::runtime::Handle::current();
        let adapters = Adapters::builder(runtime.clone()).build().unwrap();
        let host = Host::new(adapters, TableLimits::default(), Closing::on(runtime));
        // Recorded from a Mixer, which drops faulty resources.
        let mut options = BuildOptions::default();
        options.default_namespace.clone_from(&self.default_config_namespace);
        options.lenient = true;
        let built = SnapshotBuilder::new(&set, faults, &host).build(None, backends, &options).await;
        let mixer = Mixer::new();
        mixer.replace(built.unwrap().0);
        mixer
    }
}

impl Call {
    async fn run(&self, mixer: &Mixer, backends: &Backends) -> Vec<String> {
        let request = STANDARD.decode(&self.request_b64).unwrap();
        let caller = Caller::default();
        let answer = match self.kind.as_str() {
            "check" => check(mixer, CheckRequest::decode(&*request).unwrap(), caller).await.map(Some),
            _ => report(mixer, ReportRequest::decode(&*request).unwrap(), caller).await.map(|_| None),
        };
        let mut differences = match (&self.expect.error, answer) {
            (Some(expected), Err(status)) if expected.code == status_name(status.code() as i32) => Vec::new(),
            (Some(expected), Err(status)) => {
                vec![format!("expected {}, got {status}", expected.code)]
            }
            (Some(expected), Ok(_)) => vec![format!("expected {}, got an answer", expected.code)],
            (None, Err(status)) => vec![format!("expected an answer, got {status}")],
            (None, Ok(None)) => Vec::new(),
            (None, Ok(Some(response))) => compare_response(&self.expect, response),
        };
        let captured = std::mem::take(&mut *backends.captured.lock().unwrap());
        differences.extend(compare_captured(&self.expect, captured));
        differences
    }
}
