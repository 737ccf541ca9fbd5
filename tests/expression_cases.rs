//! The recorded behaviour of a real Mixer's expression language.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use mixer_adapter_engine::expression::{Language, cases};

const PROBES: &str = include_str!("data/expressions/probes.jsonl");

#[test]
fn our_own_edge_cases_come_out_as_in_a_real_mixer() {
    let report = cases::run(PROBES, Language::Cexl).unwrap();
    println!("{report}");
    assert!(report.failures.is_empty() && report.skipped.is_empty(), "{report}");
    assert_eq!(report.passed, 252);
}

#[test]
fn istio_s_own_table_comes_out_as_in_a_real_mixer() {
    let Some(table) = table() else { return };
    let report = cases::run(&table, Language::Cexl).unwrap();
    println!("{report}");
    assert!(report.failures.is_empty(), "{report}");
    assert_eq!((report.passed, report.skipped.len()), (421, 2));
}

/// Those that differ are explained in docs/cel.md.
#[cfg(feature = "cel")]
#[test]
fn cel_and_compat_come_out_as_in_a_real_mixer_but_for_four_cases_each() {
    for (language, different) in [
        (Language::Cel, ["probe-0003", "probe-0076", "probe-0189", "probe-0286"]),
        (Language::Compat, ["probe-0018", "probe-0076", "probe-0189", "probe-0286"]),
    ] {
        let report = cases::run(PROBES, language).unwrap();
        let failed: Vec<_> = report.failures.iter().map(|failure| failure.id.as_str()).collect();
        assert_eq!(failed, different, "{language:?}: {report}");
        let Some(table) = table() else { return };
        let report = cases::run(&table, language).unwrap();
        assert!(report.failures.is_empty(), "{language:?}: {report}");
        assert_eq!(report.passed, 421);
    }
}

/// The public test table of Istio is not ours to carry; it lies beside the project, or where `EXPRESSION_TABLE` says.
fn table() -> Option<String> {
    let beside =
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/vectors/expressions/table.jsonl");
    let path = std::env::var_os("EXPRESSION_TABLE").map_or_else(beside, PathBuf::from);
    match std::fs::read_to_string(&path) {
        Ok(table) => Some(table),
        Err(error) => {
            println!("LEFT OUT: the table of Istio's own cases, {}: {error}", path.display());
            None
        }
    }
}
