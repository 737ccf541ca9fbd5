//! The policy as a whole.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    baseline::Baseline,
    compatibility,
    facts::{Facts, line, parts},
    references,
    set::ProtoSet,
    version::SemanticVersion,
    violation::{Rule, Violation},
};

/// Checks protos against the policy and their published state, and returns the violations, sorted by place.
///
/// `release` is the version of the program or adapter that is released next, by which deprecations proceed; without it the versions
/// of the files are.
pub fn check(set: &ProtoSet, baseline: &Baseline, release: Option<SemanticVersion>) -> Vec<Violation> {
    let facts = Facts::of(set, &baseline.held);
    let mut violations = references::violations(&facts);
    violations.extend(compatibility::violations(&facts, baseline, release));
    violations.extend(compatibility::next_versions(&facts, baseline));
    violations.extend(versions(&facts, baseline));
    violations.extend(not_recorded(&facts, baseline));
    reported(violations, baseline)
}

/// Checks the rules that need no baseline: names of packages, and what refers to what.
pub fn check_references(set: &ProtoSet) -> Vec<Violation> {
    reported(references::violations(&Facts::of(set, &BTreeSet::new())), &Baseline::default())
}

/// Compares protos with others, an older release of them: returns the incompatible changes only.
pub fn compare(set: &ProtoSet, before: &ProtoSet) -> Vec<Violation> {
    let baseline = Baseline::of(before);
    reported(compatibility::violations(&Facts::of(set, &baseline.held), &baseline, None), &baseline)
}

/// Takes the protos over into a baseline.
///
/// # Errors
/// Violations other than missing records; the baseline is unchanged then.
pub fn record(
    set: &ProtoSet,
    baseline: &mut Baseline,
    release: Option<SemanticVersion>,
) -> Result<(), Vec<Violation>> {
    let mut violations = check(set, baseline, release);
    violations.retain(|violation| violation.rule != Rule::NotRecorded);
    if !violations.is_empty() {
        return Err(violations);
    }
    baseline.update(&Facts::of(set, &baseline.held), release);
    Ok(())
}

fn reported(mut violations: Vec<Violation>, baseline: &Baseline) -> Vec<Violation> {
    violations.retain(|violation| !baseline.allows(violation.rule, &violation.element));
    violations.sort_by(|Violation { file, line, element, rule, .. }, other| {
        (file, line, element, rule).cmp(&(&other.file, &other.line, &other.element, &other.rule))
    });
    violations.dedup();
    violations
}

/// Files that state their version must raise it by what changed.
fn versions(facts: &Facts, baseline: &Baseline) -> Vec<Violation> {
    let stated = facts.files.iter().filter_map(|(name, file)| Some((name, file.version?)));
    let too_low = stated.filter_map(|(name, version)| {
        let published = baseline.files.get(name)?;
        let needed = baseline.version_of(name, facts);
        let reason = format!(
            "changed since version {}, and states {version}; the change needs {needed} at least",
            published.version
        );
        (version < needed).then(|| Violation::new(Rule::Version, name, (name, 0), reason))
    });
    too_low.collect()
}

/// How many lines of a file are shown that are not recorded.
const SHOWN: usize = 5;

fn not_recorded(facts: &Facts, baseline: &Baseline) -> Vec<Violation> {
    let mut lines: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (key, fact) in baseline.additions(facts) {
        lines.entry(&fact.file).or_default().push(line(key, &fact.value));
    }
    for (key, value) in baseline.facts.iter().filter(|(key, _)| facts.published(key).is_none()) {
        // Removed without a violation: rules of validation, and elements whose schedule has ended.
        let (_, element, _) = parts(key);
        if let Some(fact) = facts.facts.get(&format!("field {element}")) {
            lines.entry(&fact.file).or_default().push(format!("no more: {}", line(key, value)));
        }
    }
    let changed = facts
        .files
        .iter()
        .filter(|(name, file)| baseline.files.get(*name).is_none_or(|published| published.hash != file.hash));
    let changed = changed.map(|(name, _)| {
        let lines = lines.remove(&**name).unwrap_or_default();
        let more = lines.len().saturating_sub(SHOWN);
        let mut shown: Vec<String> = lines.into_iter().take(SHOWN).collect();
        if more > 0 {
            shown.push(format!("and {more} more"));
        }
        let what = if shown.is_empty() { "annotations".to_owned() } else { shown.join("; ") };
        let reason = format!("a change is not in the baseline; record it with `proto baseline`: {what}");
        Violation::new(Rule::NotRecorded, name, (name, 0), reason)
    });
    changed.collect()
}
