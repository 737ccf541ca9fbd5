//! The configuration of the recorded dispatch cases reads with the faults that a real Mixer logged, and no others.

use std::{fs, path::Path};

use mixer_adapter_config::{ConfigSet, Kind, Parsed, ValidationError, lint, parse};
use serde_json::Value as Json;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/dispatch");

/// The configuration of each case, by its id.
fn cases() -> Vec<(String, Parsed)> {
    let cases = fs::read_to_string(Path::new(DATA).join("cases.jsonl")).unwrap();
    let cases = cases.lines().map(|line| {
        let case: Json = serde_json::from_str(line).unwrap();
        let mut all = Parsed::default();
        for file in case["config"].as_array().unwrap() {
            let file = file.as_str().unwrap();
            let text = fs::read_to_string(Path::new(DATA).join(file)).unwrap();
            let parsed = parse(&text, file, case["default_config_namespace"].as_str().unwrap());
            all.resources.extend(parsed.resources);
            all.faults.extend(parsed.faults);
        }
        (case["id"].as_str().unwrap().to_owned(), all)
    });
    cases.collect()
}

#[test]
fn only_the_rule_with_an_unknown_field_is_refused() {
    let cases = cases();
    assert_eq!(cases.len(), 123);
    let mut refused = Vec::new();
    for (id, parsed) in cases {
        assert_eq!(parsed.faults, [], "{id}");
        let (_, faults) = ConfigSet::of(parsed.resources);
        refused.extend(faults.iter().map(ToString::to_string));
    }
    assert_eq!(
        refused,
        [
            "config/cases/rule-unknown-field.yaml:38: bad.rule.istio-system: spec.actoins: no such field; did you mean actions?"
        ]
    );
}

#[test]
fn the_lints_find_what_the_cases_were_made_to_show() {
    let mut found = Vec::new();
    for (id, parsed) in cases() {
        let (set, _) = ConfigSet::of(parsed.resources);
        let instances = set.iter().map(|entry| entry.name());
        let quotas = instances.filter(|instance| instance.name().starts_with('q')).collect();
        let place = |fault: ValidationError| {
            (id.clone(), fault.resource.unwrap().to_string(), fault.field.to_string())
        };
        found.extend(lint(&set, &quotas, set.of_role(Kind::Rule)).into_iter().map(place));
    }
    let expected = [
        ("quota-unmatched-rule-beats-matched", "r2.rule.istio-system", "spec.actions[0].instances[0]"),
        ("literal-no-unescape", "i1.instance.istio-system", "spec.params.str"),
        ("literal-no-unescape", "i1.instance.istio-system", "spec.params.tags[0]"),
        ("literal-no-unescape", "i1.instance.istio-system", "spec.params.tags[1]"),
        ("quota-same-instance-two-rules", "r2.rule.istio-system", "spec.actions[0].instances[0]"),
    ];
    let expected = expected.map(|(id, name, field)| (id.to_owned(), name.to_owned(), field.to_owned()));
    assert_eq!(found, expected);
}
