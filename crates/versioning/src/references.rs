//! The rules for one set of protos: names of packages, and what may refer to what.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    facts::{Facts, Reference},
    version::{PackageVersion, Stability, version_segment},
    violation::{Rule, Violation},
};

/// Returns the violations of the rules, without regard to the published state.
pub(crate) fn violations(facts: &Facts) -> Vec<Violation> {
    let mut violations = package_names(facts);
    for reference in facts
        .references
        .iter()
        .filter(|reference| !reference.free && facts.files.contains_key(&reference.file))
    {
        violations.extend(less_stable(reference));
        violations.extend(not_latest(reference, &facts.packages));
    }
    violations.extend(one_definition(facts));
    violations
}

fn package_names(facts: &Facts) -> Vec<Violation> {
    let mut seen = BTreeSet::new();
    let files = facts.files.iter().filter(|(_, file)| !file.mixers && seen.insert(&file.package));
    let faults = files.filter_map(|(name, file)| {
        let reason = package_fault(&file.package)?.to_owned();
        Some(Violation::new(Rule::PackageName, &file.package, (name, 0), reason))
    });
    faults.collect()
}

fn package_fault(package: &str) -> Option<&'static str> {
    let segments: Vec<&str> = package.split('.').collect();
    let (last, path) = segments.split_last()?;
    if path.is_empty() || version_segment(last).is_none() {
        Some("the package does not end in its version; name it like `shop.orders.v1`, `v1beta1`, `v2alpha`")
    } else if !path.iter().all(|segment| is_package_segment(segment)) {
        Some("a part of the package is not a word of lower-case letters, digits and `_`")
    } else if path.iter().any(|segment| version_segment(segment).is_some()) {
        Some("the package has a version before its end; only the last part is the version")
    } else {
        None
    }
}

fn less_stable(reference: &Reference) -> Option<Violation> {
    let own = PackageVersion::of(&reference.package)?;
    let target = PackageVersion::of(&reference.target_package)?;
    let reason = format!("uses {}, which is less stable than {}", reference.target, reference.package);
    (target.stability < own.stability).then(|| violation(Rule::LessStable, reference, reason))
}

fn not_latest(reference: &Reference, packages: &BTreeSet<String>) -> Option<Violation> {
    let latest = latest_stable(&reference.target_package, packages)?;
    let own = latest_stable(&reference.package, packages)?;
    let reason = format!("uses {}, but the latest stable version of its API is {latest}", reference.target);
    let outdated = own == reference.package && latest != reference.target_package;
    outdated.then(|| violation(Rule::NotLatest, reference, reason))
}

fn is_package_segment(segment: &str) -> bool {
    segment.starts_with(|first: char| first.is_ascii_lowercase())
        && segment.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

/// Returns the latest stable version of an API, given any of its stable versions.
fn latest_stable(package: &str, packages: &BTreeSet<String>) -> Option<String> {
    fn is_stable(version: &PackageVersion) -> bool {
        version.stability == Stability::Stable
    }
    let own = PackageVersion::of(package).filter(is_stable)?;
    let of_api = packages.iter().filter_map(|package| {
        let version = PackageVersion::of(package).filter(is_stable)?;
        (version.api == own.api).then_some((version.major, package))
    });
    of_api.max().map(|(_, package)| package.clone())
}

fn one_definition(facts: &Facts) -> Vec<Violation> {
    let mut uses: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for reference in facts.references.iter().filter(|reference| !reference.free) {
        uses.entry(&reference.package).or_default().insert(&reference.target_package);
    }
    let checked: BTreeMap<&str, &str> =
        facts.files.iter().map(|(name, file)| (&*file.package, &**name)).collect();
    let mut violations = Vec::new();
    for (package, file) in checked {
        let stable = PackageVersion::of(package).is_some_and(|version| version.stability != Stability::Alpha);
        if !stable {
            continue;
        }
        let mut versions: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
        for reached in reachable(package, &uses) {
            if let Some(version) = PackageVersion::of(reached) {
                versions.entry(version.api).or_default().insert(reached);
            }
        }
        for (_, versions) in versions.into_iter().filter(|(_, versions)| versions.len() > 1) {
            let list: Vec<&str> = versions.into_iter().collect();
            let reason = format!("depends on more than one version of an API: {}", list.join(" and "));
            violations.push(Violation::new(Rule::OneDefinition, package, (file, 0), reason));
        }
    }
    violations
}

/// Returns a package and all packages that it depends on.
fn reachable<'a>(package: &'a str, uses: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::from([package]);
    let mut next = vec![package];
    while let Some(package) = next.pop() {
        let more = uses.get(package).into_iter().flatten();
        next.extend(more.filter(|used| reached.insert(used)));
    }
    reached
}

fn violation(rule: Rule, reference: &Reference, reason: String) -> Violation {
    Violation::new(rule, &reference.element, (&reference.file, reference.line), reason)
}
