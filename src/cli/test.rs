//! Tests of a configuration: requests, and the answers that it must give.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::{Args, ValueHint};
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};

use super::{
    AddAdapters,
    config_args::ConfigArgs,
    dry_run::{DryRun, Loaded, unknown_names},
    faults,
    mixer::{all_words, check_request, report_request},
    output_args::OutputArgs,
    style,
};
use crate::service::mixer::{trace_check, trace_report};
use mixer_adapter_config::{is_test, text_files};
use mixer_adapter_core::framework::{status::status_name, suggest::suggest};
use mixer_adapter_engine::{
    Mixer,
    attribute::parse_json,
    proto::istio::mixer::v1::{
        CheckResponse, HeaderOperation, check_request::QuotaParams, header_operation::Operation,
    },
    trace::{Step, Trace},
};
use mixer_adapter_host::handler::Caller;
use mixer_adapter_streams::{ConfigUrl, ScopedUrl};

/// Test a configuration: requests, and the answers that it must give
#[derive(Debug, Args)]
pub(super) struct Test {
    /// The configuration with its tests: a directory
    #[arg(value_name = "DIR", required_unless_present = "config", value_hint = ValueHint::AnyPath)]
    directory: Option<ScopedUrl>,

    #[command(flatten)]
    configuration: ConfigArgs,

    /// Run only tests whose name contains this text
    #[arg(long, value_name = "TEXT")]
    run: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TestFile {
    tests: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    #[serde(default)]
    attributes: Map<String, Json>,
    /// Amounts to request.
    #[serde(default)]
    quotas: BTreeMap<String, i64>,
    #[serde(default)]
    expect: Expected,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    status: Option<String>,
    message: Option<String>,
    error: Option<String>,
    #[serde(default)]
    quotas: BTreeMap<String, i64>,
    #[serde(default)]
    headers: ExpectedHeaders,
    #[serde(default)]
    response: ExpectedResponse,
    reports: Option<BTreeMap<String, Json>>,
}

/// The response to a denied request.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedResponse {
    status: Option<u32>,
    /// A part of the body.
    body: Option<String>,
}

/// The resulting headers, by name.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedHeaders {
    #[serde(default)]
    request: BTreeMap<String, ExpectedHeader>,
    #[serde(default)]
    response: BTreeMap<String, ExpectedHeader>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ExpectedHeader {
    Removed,
    Value(String),
    Values(Vec<String>),
}

/// The outcome of one test.
struct Outcome {
    file: PathBuf,
    name: String,
    /// Differences from the expectation.
    failures: Vec<String>,
}

impl Test {
    pub(super) fn run(mut self, add: AddAdapters<'_>) -> anyhow::Result<ExitCode> {
        if let Some(directory) = self.directory.take() {
            self.configuration.config = vec![directory];
        }
        let cases = self.cases()?;
        anyhow::ensure!(
            !cases.is_empty(),
            "there are no tests; write them into files *.test.yaml beside the configuration"
        );
        let mut loaded = Loaded::read(&self.configuration, None)?;
        let engines = DryRun::new(add, false)?;
        let instances = loaded.instances();
        let mut outcomes = Vec::with_capacity(cases.len());
        for (file, case) in cases {
            // Quotas and other state of adapters are of one test.
            let failures =
                engines.with_engine(&mut loaded, async |mixer| case.failures(mixer, &instances).await)?;
            outcomes.push(Outcome { file, name: case.name, failures });
        }
        engines.close();
        let failed = outcomes.iter().filter(|outcome| !outcome.failures.is_empty()).count();
        self.output.print(&json(&outcomes), || text(&outcomes, failed))?;
        Ok(if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Reads the tests to run, with their files.
    fn cases(&self) -> anyhow::Result<Vec<(PathBuf, Case)>> {
        let mut cases = Vec::new();
        for source in &self.configuration.config {
            let ConfigUrl::Files(root) = &source.url else { continue };
            for file in text_files(root).into_iter().filter(|file| is_test(file)) {
                let tests = read(&file)?.tests.into_iter();
                cases.extend(
                    tests
                        .filter(|case| self.run.as_deref().is_none_or(|part| case.name.contains(part)))
                        .map(|case| (file.clone(), case)),
                );
            }
        }
        Ok(cases)
    }
}

fn read(file: &Path) -> anyhow::Result<TestFile> {
    let name = || format!("{}", file.display());
    let text = fs::read_to_string(file).with_context(name)?;
    let read: TestFile = serde_saphyr::from_str(&text)
        .map_err(|error| usage!("not a file of tests\n{}", faults::of_yaml(&name(), &text, &error)))?;
    let mut names = BTreeSet::new();
    match read.tests.iter().find(|case| !names.insert(&case.name)) {
        Some(case) => Err(usage!("{}: two tests have the name {:?}", name(), case.name).into()),
        None => Ok(read),
    }
}

impl Case {
    /// Runs the test with a configuration with these instances. Returns the differences from what is expected, and the names that the
    /// configuration does not have.
    async fn failures(&self, mixer: &Mixer, instances: &[String]) -> anyhow::Result<Vec<String>> {
        let mut failures = Vec::new();
        let mut unknown = BTreeSet::new();
        let snapshot = mixer.snapshot().context("there is no configuration")?;
        let attributes = parse_json(&Json::Object(self.attributes.clone()), snapshot.vocabulary())
            .map_err(|error| usage!("test {:?}: {error}", self.name))?;
        let expect = &self.expect;
        let only_reports = expect.reports.is_some()
            && expect.status.is_none()
            && expect.message.is_none()
            && expect.error.is_none()
            && expect.quotas.is_empty()
            && expect.headers.request.is_empty()
            && expect.headers.response.is_empty()
            && expect.response.status.is_none()
            && expect.response.body.is_none();
        if !only_reports {
            let mut request = check_request(&attributes, all_words());
            for (name, amount) in &self.quotas {
                request.quotas.insert(name.clone(), QuotaParams { amount: *amount, best_effort: false });
            }
            let (answer, trace) = trace_check(mixer, request, Caller::default(), Trace::default()).await;
            unknown.extend(unknown_names(&trace));
            match &answer {
                Ok(answer) => expect.compare(answer, &mut failures),
                Err(status) => {
                    let code = status_name(status.code() as i32);
                    if expect.error.as_deref() != Some(&*code) {
                        let expected = expect
                            .error
                            .as_deref()
                            .map_or("an answer".to_owned(), |code| format!("error {code}"));
                        failures.push(format!("expected {expected}, got error {code}: {}", status.message()));
                    }
                }
            }
        }
        if let Some(reports) = &expect.reports {
            let request = report_request(&[attributes], all_words());
            let (answer, trace) = trace_report(mixer, request, Caller::default(), Trace::default()).await;
            if let Err(status) = answer {
                failures.push(format!("the report fails: {}", status.message()));
            }
            unknown.extend(unknown_names(&trace));
            unknown.extend(reports.keys().filter_map(|name| unknown_instance(name, instances)));
            compare_reports(reports, &trace.steps, &mut failures);
        }
        failures.extend(unknown);
        Ok(failures)
    }
}

impl Expected {
    fn compare(&self, answer: &CheckResponse, failures: &mut Vec<String>) {
        let status = answer.precondition.clone().unwrap_or_default().status.unwrap_or_default();
        if let Some(error) = &self.error {
            failures.push(format!("expected error {error}, got an answer"));
        }
        let (expected, code) = (self.status.as_deref().unwrap_or("OK"), status_name(status.code));
        if expected != code {
            let message =
                if status.message.is_empty() { String::new() } else { format!(": {}", status.message) };
            failures.push(format!("status: expected {expected}, got {code}{message}"));
        }
        if let Some(part) = self.message.as_deref().filter(|part| !status.message.contains(part)) {
            failures.push(format!("message: expected {part:?}, got {:?}", status.message));
        }
        let directive = answer.precondition.as_ref().and_then(|result| result.route_directive.as_ref());
        let (request, response) = directive.map_or((&[][..], &[][..]), |directive| {
            (&directive.request_header_operations, &directive.response_header_operations)
        });
        let (status, body) = directive.map_or((0, ""), |directive| {
            (directive.direct_response_code, directive.direct_response_body.as_str())
        });
        if let Some(expected) = self.response.status.filter(|expected| *expected != status) {
            failures.push(format!("status of the response: expected {expected}, got {status}"));
        }
        if let Some(part) = self.response.body.as_deref().filter(|part| !body.contains(part)) {
            failures.push(format!("body of the response: expected {part:?}, got {body:?}"));
        }
        compare_headers("request", &self.headers.request, request, failures);
        compare_headers("response", &self.headers.response, response, failures);
        for (name, expected) in &self.quotas {
            match answer.quotas.get(name).map(|quota| quota.granted_amount) {
                Some(granted) if granted == *expected => {}
                Some(granted) => failures.push(format!("quota {name}: expected {expected}, got {granted}")),
                None => {
                    failures.push(format!("quota {name}: expected {expected}, but it is not in the answer"))
                }
            }
        }
    }
}

/// Compares the operations on headers, whose names are compared without regard to case.
fn compare_headers(
    of: &str,
    expected: &BTreeMap<String, ExpectedHeader>,
    operations: &[HeaderOperation],
    failures: &mut Vec<String>,
) {
    for (name, expected) in expected {
        let of_header = || operations.iter().filter(|operation| operation.name.eq_ignore_ascii_case(name));
        let is_removed = of_header().any(|header| header.operation() == Operation::Remove);
        let values: Vec<&str> = of_header()
            .filter(|header| header.operation() != Operation::Remove)
            .map(|header| header.value.as_str())
            .collect();
        let (is_met, expected) = match expected {
            ExpectedHeader::Removed => (is_removed && values.is_empty(), "to be removed".to_owned()),
            ExpectedHeader::Value(value) => (values == [value], format!("{value:?}")),
            ExpectedHeader::Values(expected) => (values == *expected, format!("{expected:?}")),
        };
        if !is_met {
            let actual = match (&values[..], is_removed) {
                ([], true) => "it is removed".to_owned(),
                ([], false) => "it is not changed".to_owned(),
                ([value], _) => format!("got {value:?}"),
                (values, _) => format!("got {values:?}"),
            };
            failures.push(format!("{of} header {name}: expected {expected}, {actual}"));
        }
    }
}

/// Whether an instance has this short or full name.
fn is_named(instance: &str, name: &str) -> bool {
    instance == name || short(instance) == name
}

fn short(instance: &str) -> &str {
    instance.split('.').next().unwrap_or_default()
}

/// Describes an instance that the configuration does not have.
fn unknown_instance(name: &str, instances: &[String]) -> Option<String> {
    if instances.iter().any(|instance| is_named(instance, name)) {
        return None;
    }
    let known = instances.iter().map(|instance| if name.contains('.') { instance } else { short(instance) });
    let help = suggest(name, known).map(|similar| format!("; did you mean {similar}?")).unwrap_or_default();
    Some(format!("report {name}: there is no instance of this name{help}"))
}

/// Compares the instances of a report with those expected, by short or full name.
fn compare_reports(expected: &BTreeMap<String, Json>, steps: &[Step], failures: &mut Vec<String>) {
    let reported: Vec<(&str, &Json)> = steps
        .iter()
        .filter_map(|step| match step {
            Step::Instance { instance, built: Some(built), .. } => Some((instance.as_str(), built)),
            _ => None,
        })
        .collect();
    for (name, fields) in expected {
        let mut found =
            reported.iter().filter(|(instance, _)| is_named(instance, name)).map(|(_, built)| *built);
        match (found.next(), fields) {
            (None, Json::Null) => {}
            (None, _) => failures.push(format!("report {name}: expected, but it is not reported")),
            (Some(built), Json::Null) => failures.push(format!("report {name}: not expected, got {built}")),
            (Some(built), fields) if includes(built, fields) => {}
            (Some(built), fields) => failures.push(format!("report {name}: expected {fields}, got {built}")),
        }
    }
}

/// Returns whether a value has all expected fields.
fn includes(actual: &Json, expected: &Json) -> bool {
    match (actual, expected) {
        (Json::Object(actual), Json::Object(expected)) => expected
            .iter()
            .all(|(name, value)| actual.get(name).is_some_and(|actual| includes(actual, value))),
        (Json::Number(actual), Json::Number(expected)) => actual.as_f64() == expected.as_f64(),
        (actual, expected) => actual == expected,
    }
}

fn text(outcomes: &[Outcome], failed: usize) -> String {
    let mut text = String::new();
    for outcome in outcomes.iter().filter(|outcome| !outcome.failures.is_empty()) {
        let line = format!("FAILED {}: {}\n", outcome.file.display(), outcome.name);
        text.push_str(&style::paint_first(&line, &[("FAILED", style::BAD)], style::on_stdout()));
        for failure in &outcome.failures {
            text.push_str(&format!("  {failure}\n"));
        }
    }
    let tests = super::counted(outcomes.len(), "test");
    text + &format!("{tests}: {} passed, {failed} failed\n", outcomes.len() - failed)
}

fn json(outcomes: &[Outcome]) -> Json {
    let tests = outcomes.iter().map(|outcome| {
        json!({
            "file": outcome.file.display().to_string(),
            "name": outcome.name,
            "passed": outcome.failures.is_empty(),
            "failures": outcome.failures,
        })
    });
    json!({ "tests": tests.collect::<Vec<_>>() })
}
