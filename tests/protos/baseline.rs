//! The facts that were published, and what a change does to them.

use std::{collections::BTreeSet, fs, path::Path};

/// Fails where a published fact is gone, or one is not written down yet. With `UPDATE_PROTO_BASELINE=1` new ones are.
pub(crate) fn check(facts: &BTreeSet<String>, baseline: &Path) {
    let text = fs::read_to_string(baseline).unwrap_or_default();
    let published: BTreeSet<String> = text.lines().map(str::to_owned).collect();
    let gone = missing(&published, facts);
    assert!(
        gone.is_empty(),
        "an incompatible change: these are published in {} and hold no more\n{}\nKeep them, and add beside them; a field \
         that is not to be used any more is marked deprecated",
        baseline.display(),
        gone.join("\n"),
    );
    let new = missing(facts, &published);
    if new.is_empty() {
        return;
    }
    if std::env::var_os("UPDATE_PROTO_BASELINE").is_none_or(|update| update != "1") {
        panic!(
            "a compatible change that is not in {} yet: run the test again with UPDATE_PROTO_BASELINE=1, and commit it\n{}",
            baseline.display(),
            new.join("\n"),
        );
    }
    let lines: Vec<&str> = facts.iter().map(String::as_str).collect();
    fs::write(baseline, lines.join("\n") + "\n").unwrap();
}

/// What is in one set and not in the other.
pub(crate) fn missing(from: &BTreeSet<String>, in_: &BTreeSet<String>) -> Vec<String> {
    from.difference(in_).cloned().collect()
}
