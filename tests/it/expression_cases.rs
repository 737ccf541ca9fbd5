//! Compares the expression language with the recorded behaviour of Mixer.

use std::path::PathBuf;

use mixer_adapter_engine::expression::{Language, cases};

const PROBES: &str = include_str!("../data/expressions/probes.jsonl");

#[test]
fn edge_cases_have_the_outcome_recorded_from_mixer() {
    let report = cases::run(PROBES, Language::Cexl, |_| {}).unwrap();
    println!("{report}");
    assert!(report.failures.is_empty() && report.skipped.is_empty(), "{report}");
    assert_eq!(report.passed, 252);
}

#[test]
fn the_cases_of_istio_s_test_table_have_the_outcome_recorded_from_mixer() {
    let Some(table) = table() else { return };
    let report = cases::run(&table, Language::Cexl, |_| {}).unwrap();
    println!("{report}");
    assert!(report.failures.is_empty(), "{report}");
    assert_eq!((report.passed, report.skipped.len()), (421, 2));
}

/// docs/cel.md explains the differences.
#[cfg(feature = "cel")]
#[test]
fn cel_and_compat_differ_from_the_recorded_outcome_in_four_cases_each() {
    for (language, different) in [
        (Language::Cel, ["probe-0003", "probe-0076", "probe-0189", "probe-0286"]),
        (Language::Compat, ["probe-0018", "probe-0076", "probe-0189", "probe-0286"]),
    ] {
        let report = cases::run(PROBES, language, |_| {}).unwrap();
        let failed: Vec<_> = report.failures.iter().map(|failure| failure.id.as_str()).collect();
        assert_eq!(failed, different, "{language:?}: {report}");
        let Some(table) = table() else { return };
        let report = cases::run(&table, language, |_| {}).unwrap();
        assert!(report.failures.is_empty(), "{language:?}: {report}");
        assert_eq!(report.passed, 421);
    }
}

/// Reads Istio's public test table, which is not part of this repository: from the path in `EXPRESSION_TABLE`, or from
/// beside the repository.
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn table() -> Option<String> {
    let beside =
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/vectors/expressions/table.jsonl");
    let path = std::env::var_os("EXPRESSION_TABLE").map_or_else(beside, PathBuf::from);
    match std::fs::read_to_string(&path) {
        Ok(table) => Some(table),
        Err(error) => {
            println!("SKIPPED: cannot read Istio's test table, {}: {error}", path.display());
            None
        }
    }
}
