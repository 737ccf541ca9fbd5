//! Cases as they were recorded; `tests/data/differential/README.md` describes the format.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read},
    path::PathBuf,
};

use serde::Deserialize;
use serde_json::Value as Json;

use super::request::Request;

/// One configuration, the requests sent to it in order, and the outcomes.
#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) resources: Vec<Json>,
    pub(crate) requests: Vec<Request>,
    pub(crate) expect: Outcome,
}

/// The outcomes of a case's requests: answers, lines of stdio, and the page of prometheus.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) answers: Vec<Answer>,
    /// By the name of the file, in which `@NS@` is the namespace of the case.
    pub(crate) files: BTreeMap<String, Vec<String>>,
    pub(crate) stdout: Vec<String>,
    pub(crate) stderr: Vec<String>,
    /// The samples by their series.
    pub(crate) prom: BTreeMap<String, String>,
    /// Lines that begin with `# HELP` or `# TYPE`.
    pub(crate) prom_help: Vec<String>,
}

/// The answer to a Check; that to a Report has only a code.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    /// The gRPC code.
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) status: i32,
    #[serde(default)]
    pub(crate) message: String,
    /// In nanoseconds.
    #[serde(default)]
    pub(crate) duration: i128,
    #[serde(default)]
    pub(crate) uses: i32,
    /// `request.headers[x]=ABSENCE`, sorted.
    #[serde(default)]
    pub(crate) refs: Vec<String>,
    #[serde(default)]
    pub(crate) route: Route,
    #[serde(default)]
    pub(crate) quotas: BTreeMap<String, Quota>,
}

/// Operations are name, value and the number of the operation.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Route {
    pub(crate) request: Vec<(String, String, i32)>,
    pub(crate) response: Vec<(String, String, i32)>,
    /// Code and body.
    pub(crate) direct: (u32, String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Quota {
    pub(crate) granted: i64,
    pub(crate) duration: i128,
    pub(crate) refs: Vec<String>,
    pub(crate) status: i32,
}

pub(crate) fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/data/differential")
}

/// The manifest of attributes that all cases need.
pub(crate) fn manifest() -> Json {
    serde_json::from_str(&fs::read_to_string(data().join("manifest.json")).unwrap()).unwrap()
}

/// Small cases, each about one thing.
pub(crate) fn named() -> Vec<Case> {
    read(fs::File::open(data().join("named.jsonl")).unwrap())
}

/// Cases of random configurations and requests.
pub(crate) fn generated() -> Vec<Case> {
    let file = fs::File::open(data().join("generated.jsonl.gz")).unwrap();
    read(flate2::read::GzDecoder::new(file))
}

fn read(text: impl Read) -> Vec<Case> {
    BufReader::new(text).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect()
}

impl Case {
    /// The configuration as YAML, files in that folder.
    pub(crate) fn configuration(&self) -> String {
        let resources = [manifest()].into_iter().chain(self.resources.iter().cloned());
        resources.map(|resource| format!("---\n{resource}\n")).collect()
    }

    /// The adapters that its handlers name.
    pub(crate) fn adapters(&self) -> impl Iterator<Item = &str> {
        self.resources.iter().filter_map(|resource| resource["spec"]["compiledAdapter"].as_str())
    }

    /// Whether it uses what a process has only one of: standard output, standard error, the Prometheus endpoint.
    pub(crate) fn needs_process(&self) -> bool {
        let streams = self.resources.iter().any(|resource| {
            let spec = &resource["spec"];
            spec["compiledAdapter"] == "stdio" && spec["params"]["outputPath"].is_null()
        });
        streams || self.adapters().any(|adapter| adapter == "prometheus")
    }
}
