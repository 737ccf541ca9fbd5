//! What differs between the outcome that was recorded and ours. Free are the order of lines, of the messages of several denials
//! and of header operations, and how much is left of a validity, within limits.

use std::{collections::BTreeMap, fmt::Debug};

use super::case::{Answer, Case, Outcome, Quota};

/// What is left of a validity may differ by this many nanoseconds.
const TOLERANCE: i128 = 400_000_000;

/// One thing that is not as it was recorded.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    /// Where: `answers[3].message`, `files[@NS@-h.log]`, `prom[istio_m]`.
    pub(crate) place: String,
    /// The request, for differences of its answer.
    pub(crate) request: Option<usize>,
    pub(crate) expected: String,
    pub(crate) actual: String,
}

impl Difference {
    /// The place with `*` for the index of an answer, and without the labels of a metric.
    pub(crate) fn pattern(&self) -> String {
        match self.request {
            Some(index) => self.place.replacen(&format!("[{index}]"), "[*]", 1),
            None => match self.place.split_once('{') {
                Some((metric, _)) if metric.starts_with("prom[") => format!("{metric}]"),
                _ => self.place.clone(),
            },
        }
    }
}

#[derive(Default)]
struct Differences(Vec<Difference>);

impl Differences {
    fn compare<T: PartialEq + Debug>(
        &mut self,
        place: impl Into<String>,
        request: Option<usize>,
        expected: T,
        actual: T,
    ) {
        if expected != actual {
            self.add(place, request, format!("{expected:?}"), format!("{actual:?}"));
        }
    }

    fn add(&mut self, place: impl Into<String>, request: Option<usize>, expected: String, actual: String) {
        self.0.push(Difference { place: place.into(), request, expected, actual });
    }

    fn lines(&mut self, place: String, expected: &[String], actual: &[String], metrics: &[String]) {
        let sorted = |lines: &[String]| {
            let mut lines: Vec<String> = lines.iter().map(|line| without_call_time(line, metrics)).collect();
            lines.sort();
            lines
        };
        let (mut expected, mut actual) = (sorted(expected), sorted(actual));
        // Only what one side lacks is shown.
        expected.retain(|line| match actual.iter().position(|other| other == line) {
            Some(place) => {
                actual.remove(place);
                false
            }
            None => true,
        });
        self.compare(place, None, expected, actual);
    }
}

pub(crate) fn compare(case: &Case, actual: &Outcome) -> Vec<Difference> {
    let expected = &case.expect;
    let mut found = Differences::default();
    found.compare("answers", None, expected.answers.len(), actual.answers.len());
    for (index, (expected, actual)) in expected.answers.iter().zip(&actual.answers).enumerate() {
        answer(index, expected, actual, &mut found);
    }
    let metrics: Vec<String> = case
        .resources
        .iter()
        .filter(|resource| resource["spec"]["compiledTemplate"] == "metric")
        .map(|resource| {
            let metadata = &resource["metadata"];
            format!("{}.instance.{}", text(&metadata["name"]), text(&metadata["namespace"]))
        })
        .collect();
    found.compare(
        "files",
        None,
        expected.files.keys().collect::<Vec<_>>(),
        actual.files.keys().collect::<Vec<_>>(),
    );
    for (file, lines) in &expected.files {
        if let Some(actual) = actual.files.get(file) {
            found.lines(format!("files[{file}]"), lines, actual, &metrics);
        }
    }
    found.lines("stdout".to_owned(), &expected.stdout, &actual.stdout, &metrics);
    found.lines("stderr".to_owned(), &expected.stderr, &actual.stderr, &metrics);
    samples(&expected.prom, &actual.prom, &mut found);
    found.lines("prom_help".to_owned(), &expected.prom_help, &actual.prom_help, &[]);
    found.0
}

fn answer(index: usize, expected: &Answer, actual: &Answer, found: &mut Differences) {
    let request = Some(index);
    let place = |field: &str| format!("answers[{index}].{field}");
    found.compare(place("code"), request, &expected.code, &actual.code);
    if expected.code != actual.code {
        return;
    }
    found.compare(place("status"), request, expected.status, actual.status);
    let messages = |answer: &Answer| {
        let mut messages: Vec<String> = answer.message.split(", ").map(str::to_owned).collect();
        messages.sort();
        messages
    };
    found.compare(place("message"), request, messages(expected), messages(actual));
    if (expected.duration - actual.duration).abs() > TOLERANCE {
        found.compare(place("duration"), request, expected.duration, actual.duration);
    }
    found.compare(place("uses"), request, expected.uses, actual.uses);
    found.compare(place("refs"), request, &expected.refs, &actual.refs);
    let sorted = |operations: &[(String, String, i32)]| {
        let mut operations = operations.to_vec();
        operations.sort();
        operations
    };
    let (given, ours) = (&expected.route, &actual.route);
    found.compare(place("route.request"), request, sorted(&given.request), sorted(&ours.request));
    found.compare(place("route.response"), request, sorted(&given.response), sorted(&ours.response));
    found.compare(place("route.direct"), request, &given.direct, &ours.direct);
    let names = |answer: &Answer| answer.quotas.keys().cloned().collect::<Vec<_>>();
    found.compare(place("quotas"), request, names(expected), names(actual));
    for (name, expected) in &expected.quotas {
        if let Some(actual) = actual.quotas.get(name) {
            quota(&place(&format!("quotas[{name}]")), request, expected, actual, found);
        }
    }
}

fn quota(place: &str, request: Option<usize>, expected: &Quota, actual: &Quota, found: &mut Differences) {
    found.compare(format!("{place}.granted"), request, expected.granted, actual.granted);
    if (expected.duration - actual.duration).abs() > TOLERANCE {
        found.compare(format!("{place}.duration"), request, expected.duration, actual.duration);
    }
    found.compare(format!("{place}.refs"), request, &expected.refs, &actual.refs);
    found.compare(format!("{place}.status"), request, expected.status, actual.status);
}

/// Series are compared as texts, their values as numbers.
fn samples(expected: &BTreeMap<String, String>, actual: &BTreeMap<String, String>, found: &mut Differences) {
    let number = |text: &str| text.parse::<f64>().unwrap().to_bits();
    for (series, value) in expected {
        match actual.get(series) {
            Some(actual) if number(actual) == number(value) => {}
            actual => found.add(
                format!("prom[{series}]"),
                None,
                value.clone(),
                actual.cloned().unwrap_or_else(|| "no such series".to_owned()),
            ),
        }
    }
    for (series, value) in actual.iter().filter(|(series, _)| !expected.contains_key(*series)) {
        found.add(format!("prom[{series}]"), None, "no such series".to_owned(), value.clone());
    }
}

fn text(json: &serde_json::Value) -> &str {
    json.as_str().unwrap()
}

/// The line of a metric has the time of the call in which it came.
fn without_call_time(line: &str, metrics: &[String]) -> String {
    const TIME: &str = "\"time\":\"";
    for metric in metrics {
        if line.contains(&format!("\"instance\":\"{metric}\"")) {
            let start = line.find(TIME).unwrap() + TIME.len();
            let end = start + line[start..].find('"').unwrap();
            return format!("{}{}", &line[..start], &line[end..]);
        }
        if line.split('\t').nth(2) == Some(metric) {
            return line.split_once('\t').unwrap().1.to_owned();
        }
    }
    line.to_owned()
}
