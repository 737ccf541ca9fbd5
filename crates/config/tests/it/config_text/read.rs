//! One body for fuzzers and property tests.

use std::sync::Arc;

use mixer_adapter_config::{Change, ConfigSet, Kind, lint, parse};

/// Reads any text: every fault is in it and says something, and reading it again changes nothing.
pub(crate) fn read(text: &str) {
    let parsed = parse(text, "x.yaml", "ns");
    let (set, faults) = ConfigSet::of(parsed.resources.clone());
    let known = set.iter().count();
    let names = set.iter().map(|entry| entry.name());
    let lints = lint(&set, &names.filter(|name| name.name().len() > 1).collect(), set.of_role(Kind::Rule));
    for fault in parsed.faults.iter().chain(&faults).chain(&lints) {
        let line = fault.origin.as_ref().unwrap().line as usize;
        assert!(line <= text.lines().count().max(1), "{fault} in {} lines", text.lines().count());
        assert!(!fault.reason.is_empty());
    }
    let (again, _) = set.apply(Change::full_sets(parsed.resources));
    assert_eq!(again.iter().count(), known);
    assert!(set.iter().zip(again.iter()).all(|(one, other)| Arc::ptr_eq(one, other)));
}
