//! Comparison of protos with their published state.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    baseline::{Baseline, PublishedFile},
    facts::{Fact, Facts, parts},
    schedule::verb,
    version::{PackageVersion, SemanticVersion, Stability, Stage},
    violation::{Rule, Violation},
};

/// Kinds of facts that are elements: facts that were removed with one are not reported again.
const ELEMENTS: [&str; 7] = ["message", "field", "enum", "value", "service", "method", "extension"];

/// Returns the incompatible changes. `release` is the clock of deprecations; without it a file's version is.
pub(crate) fn violations(
    facts: &Facts,
    baseline: &Baseline,
    release: Option<SemanticVersion>,
) -> Vec<Violation> {
    let comparison = Comparison { facts, baseline, release };
    let mut violations = Vec::new();
    for (name, file) in &baseline.files {
        violations.extend(comparison.file(name, file));
    }
    let mut gone: BTreeSet<&str> = BTreeSet::new();
    for key in baseline.facts.keys().filter(|key| facts.published(key).is_none()) {
        let (kind, element, _) = parts(key);
        if ELEMENTS.contains(&kind) {
            gone.insert(element);
        }
    }
    for (key, before) in &baseline.facts {
        let (_, element, _) = parts(key);
        let broken = match facts.published(key) {
            // A removed container stands for its contents.
            None if ancestors(element).any(|ancestor| gone.contains(ancestor)) => None,
            None => comparison.gone(key, before, gone.contains(element)),
            Some(now) if now.value != *before => changed(key, before, now),
            Some(_) => None,
        };
        violations.extend(broken.map(|broken| comparison.violation(key, broken)));
    }
    for (key, fact) in baseline.additions(facts) {
        let broken = comparison.added(key, fact);
        violations.extend(broken.map(|broken| comparison.violation(key, broken)));
    }
    violations
}

/// Returns the messages, enums or services around an element, the innermost first.
fn ancestors(element: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(element.rsplit_once('.'), |(parent, _)| parent.rsplit_once('.'))
        .map(|(parent, _)| parent)
}

/// A rule that a fact breaks, and how.
type Broken = (Rule, String);

struct Comparison<'a> {
    facts: &'a Facts,
    baseline: &'a Baseline,
    release: Option<SemanticVersion>,
}

impl Comparison<'_> {
    fn file(&self, name: &str, before: &PublishedFile) -> Option<Violation> {
        if PackageVersion::of(&before.package).is_some_and(|version| version.stability == Stability::Alpha) {
            return None;
        }
        let (rule, file, reason) = match self.facts.files.get(name) {
            None => {
                let package = &before.package;
                let reason = format!(
                    "the file is gone, which others import; keep it at this path (package {package})"
                );
                (Rule::Removed, "", reason)
            }
            Some(now) if now.package != before.package => {
                let (was, is) = (&before.package, &now.package);
                let reason = format!("the package was {was} and is {is}; keep it, type URLs have it");
                (Rule::Changed, name, reason)
            }
            Some(now) if now.syntax != before.syntax => {
                let (was, is) = (&before.syntax, &now.syntax);
                let reason = format!("the syntax was {was} and is {is}, which reads absent values otherwise");
                (Rule::Changed, name, reason)
            }
            Some(_) => return None,
        };
        Some(Violation::new(rule, name, (file, 0), reason))
    }

    fn gone(&self, key: &str, before: &str, element_is_gone: bool) -> Option<Broken> {
        let (kind, element, rest) = parts(key);
        if self.facts.facts.get(key).is_some_and(|fact| fact.free) && ELEMENTS.contains(&kind) {
            let reason =
                "was published and is marked as a draft; drafts can change, published elements cannot";
            return Some((Rule::Changed, reason.to_owned()));
        }
        match kind {
            "field" | "value" => self.numbered_gone(kind, element, before),
            _ if ELEMENTS.contains(&kind) => self.removed(element),
            _ if element_is_gone => None,
            "rule" if LOOSENING.iter().any(|end| rest.ends_with(end)) => Some((
                Rule::Validation,
                format!("{rest} = {before} is gone, and what it accepted is rejected"),
            )),
            // Rejected values are valid now.
            "rule" => None,
            "deprecated" => {
                Some((Rule::Mark, format!("was marked as deprecated in {before} and is not any more")))
            }
            "reserved" if self.is_reserved(element, rest) => None,
            "reserved" => {
                Some((Rule::Reserved, format!("{rest} was reserved and can be used again; reserve it")))
            }
            "contract" => Some((Rule::Removed, format!("{rest} = {before} is gone"))),
            _ => Some((Rule::Changed, format!("{kind} {rest} was {before} and is gone"))),
        }
    }

    /// Returns the rule that a removed field or value breaks, if it does.
    fn numbered_gone(&self, kind: &str, element: &str, before: &str) -> Option<Broken> {
        let number = before.split(':').next().unwrap_or_default();
        if let Some((other, now)) = self.same_number(kind, element, number) {
            return Some(if now.value == *before {
                let reason =
                    format!("is called {other} now; JSON and generated code have the name, so keep it");
                (Rule::Renamed, reason)
            } else {
                let reason =
                    format!("is gone, and {other} has its number {number}; reserve the number for ever");
                (Rule::Reserved, reason)
            });
        }
        let (parent, name) = element.rsplit_once('.')?;
        let reserved = self.is_reserved(parent, number) && self.is_reserved(parent, &format!("{name:?}"));
        match self.stage(element) {
            Some(Stage::Gone) if reserved => None,
            Some(Stage::Gone) => Some((
                Rule::Reserved,
                format!(
                    "is gone after its deprecation; write `reserved {number}; reserved \"{name}\";` in its place"
                ),
            )),
            _ => self.removed(element),
        }
    }

    fn removed(&self, element: &str) -> Option<Broken> {
        let reason = match self.stage(element) {
            Some(Stage::Gone) => return None,
            Some(stage) => {
                let effect = verb(stage);
                format!("is gone in the release in which its use {effect}; keep it until the schedule ends")
            }
            None => {
                "is gone; keep it, and mark it as deprecated where it is not to be used any more".to_owned()
            }
        };
        Some((Rule::Removed, reason))
    }

    /// The stage of a deprecation that was published.
    fn stage(&self, element: &str) -> Option<Stage> {
        let mark = self.baseline.facts.get(&format!("deprecated {element}"))?.parse().ok()?;
        let release = self.release.or_else(|| self.version_around(element))?;
        Some(Stage::of(release.releases_since(mark)))
    }

    /// The version of the file that has the outermost element around this one.
    fn version_around(&self, element: &str) -> Option<SemanticVersion> {
        let file = ancestors(element).chain([element]).find_map(|name| {
            let keys = ["message", "enum", "service"].map(|kind| format!("{kind} {name}"));
            keys.iter().find_map(|key| self.baseline.facts.get(key)).filter(|file| !file.is_empty())
        })?;
        let stated = self.facts.files.get(file).and_then(|now| now.version);
        stated.or_else(|| self.baseline.files.get(file).map(|file| file.version))
    }

    /// Another element of the same message or enum that has the number.
    fn same_number(&self, kind: &str, element: &str, number: &str) -> Option<(&str, &Fact)> {
        let (parent, _) = element.rsplit_once('.')?;
        let prefix = format!("{kind} {parent}.");
        let siblings =
            self.facts.facts.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        let mut siblings = siblings.filter(|(key, _)| !key[prefix.len()..].contains('.'));
        siblings.find_map(|(key, fact)| {
            let published = self.baseline.facts.contains_key(key);
            let same = fact.value.split(':').next() == Some(number);
            (same && !published).then_some((&key[kind.len() + 1..], fact))
        })
    }

    fn is_reserved(&self, element: &str, what: &str) -> bool {
        let prefix = format!("reserved {element} ");
        let ranges = self.facts.facts.range(prefix.clone()..).take_while(|(key, _)| key.starts_with(&prefix));
        let mut ranges = ranges.map(|(key, _)| &key[prefix.len()..]);
        match range(what) {
            None => ranges.any(|name| name == what),
            // The numbers may be reserved by several ranges now.
            Some((mut next, last)) => {
                let mut now: Vec<_> = ranges.filter_map(range).collect();
                now.sort_unstable();
                for (from, to) in now {
                    if from <= next && next <= to {
                        next = to.saturating_add(1);
                    }
                }
                next > last
            }
        }
    }

    fn added(&self, key: &str, Fact { value, .. }: &Fact) -> Option<Broken> {
        let (kind, element, rest) = parts(key);
        let element_existed = ELEMENTS.iter().any(|kind| self.was_published(kind, element));
        let parent_existed =
            element.rsplit_once('.').is_some_and(|(parent, _)| self.was_published("message", parent));
        match kind {
            "rule" if element_existed && self.replaces_stricter(element, rest, value) => None,
            "rule" if element_existed => {
                Some((Rule::Validation, format!("{rest} = {value} is new, and rejects what was valid")))
            }
            "rule" if parent_existed && requires_presence(rest, value) => Some((
                Rule::Validation,
                format!("the new field is required ({rest} = {value}), and messages from before lack it"),
            )),
            "field" if parent_existed && value.contains(": required ") => {
                let reason = "the new field is required, and messages from before lack it";
                Some((Rule::Validation, reason.to_owned()))
            }
            "json" if element_existed => {
                Some((Rule::Changed, format!("the JSON name is {value} since this change")))
            }
            "default" if element_existed => {
                Some((Rule::Changed, format!("the default is {value} since this change")))
            }
            "option" if self.baseline.facts.values().any(|place| place == element) => Some((
                Rule::Changed,
                format!("the option {rest} = {value} is new and changes names in generated code"),
            )),
            _ => None,
        }
    }

    fn was_published(&self, kind: &str, element: &str) -> bool {
        self.baseline.facts.contains_key(&format!("{kind} {element}"))
    }

    /// Whether a new rule rejects nothing that the one in its place let through: `gte: 0` for `gt: 0`.
    fn replaces_stricter(&self, element: &str, rule: &str, now: &str) -> bool {
        if LOOSENING.iter().any(|end| rule.ends_with(end)) {
            return now == "true";
        }
        let other = [(".gte", ".gt"), (".lte", ".lt")].iter().find_map(|(new, old)| {
            let before =
                self.baseline.facts.get(&format!("rule {element} {}{old}", rule.strip_suffix(new)?))?;
            Some((new, before.parse::<f64>().ok()?))
        });
        match (other, now.parse::<f64>()) {
            (Some((&".gte", before)), Ok(now)) => now <= before,
            (Some((_, before)), Ok(now)) => now >= before,
            _ => false,
        }
    }

    fn violation(&self, key: &str, (rule, reason): Broken) -> Violation {
        let (_, element, _) = parts(key);
        let place = self.facts.facts.get(key).or_else(|| {
            // A removed element is reported at the enclosing message.
            ancestors(element).find_map(|name| self.facts.facts.get(&format!("message {name}")))
        });
        let place = place.map(|fact| (&*fact.file, fact.line)).unwrap_or_default();
        Violation::new(rule, element, place, reason)
    }
}

/// Returns the rule that a changed fact breaks, if it does.
fn changed(key: &str, before: &str, now: &Fact) -> Option<Broken> {
    let (kind, element, rest) = parts(key);
    let now = &now.value;
    let what = match kind {
        "field" => return Some((Rule::Changed, field_change(before, now))),
        "value" => {
            return Some((Rule::Changed, format!("the number was {before} and is {now}; keep it")));
        }
        "message" | "enum" | "service" => {
            let reason = format!("moved from {before} to {now}; others import the file, so keep it there");
            return Some((Rule::Changed, reason));
        }
        "deprecated" if now.is_empty() => return None,
        "deprecated" => {
            let reason = format!("the version of the mark was {before} and is {now}; keep the first");
            return Some((Rule::Mark, reason));
        }
        "rule" if is_looser(rest, before, now) => return None,
        "rule" => {
            let reason = format!("{rest} was {before} and is {now}, and rejects what was valid");
            return Some((Rule::Validation, reason));
        }
        "method" => "the signature".to_owned(),
        "json" => "the JSON name".to_owned(),
        "default" => "the default".to_owned(),
        "option" => format!("the option {rest}, which decides names in generated code,"),
        _ => format!("{kind} {element} {rest}"),
    };
    Some((Rule::Changed, format!("{what} was {before} and is {now}")))
}

/// Reads `5` and `5 to 7`.
fn range(text: &str) -> Option<(i64, i64)> {
    match text.split_once(" to ") {
        Some((from, to)) => Some((from.parse().ok()?, to.parse().ok()?)),
        None => text.parse().ok().map(|number| (number, number)),
    }
}

/// Describes the change of a field from `1: repeated string` to another such value.
fn field_change(before: &str, now: &str) -> String {
    let [(number, of), (new_number, new_of)] =
        [before, now].map(|value| value.split_once(": ").unwrap_or((value, "")));
    if number != new_number {
        return format!("the number was {number} and is {new_number}; keep it, the encoding has it");
    }
    format!("the type was `{of}` and is `{new_of}`; keep it, and add a field for the other")
}

/// Rules that accept more where they are set.
const LOOSENING: [&str; 2] = [".ignore_empty", ".skip"];

/// Whether a message without the field breaks a rule. Rules for the items of a list do not count: the list may be empty.
fn requires_presence(rule: &str, value: &str) -> bool {
    let of_items = [".items.", ".keys.", ".values."].iter().any(|part| rule.contains(part));
    let least = [".min_len", ".min_bytes", ".min_items", ".min_pairs"];
    let at_least = least.iter().any(|end| rule.ends_with(end)) && value != "0";
    !of_items && (at_least || rule.ends_with(".required") && value == "true")
}

/// Whether a rule of validation rejects less than before, judged by its name.
fn is_looser(rule: &str, before: &str, now: &str) -> bool {
    let [before_number, now_number] = [before, now].map(|text| text.trim_matches('"').parse::<f64>().ok());
    let ends = |names: &[&str]| names.iter().any(|name| rule.ends_with(name));
    match before_number.zip(now_number) {
        Some((before, now))
            if ends(&[".min_len", ".min_bytes", ".min_items", ".min_pairs", ".gt", ".gte"]) =>
        {
            now <= before
        }
        Some((before, now))
            if ends(&[".max_len", ".max_bytes", ".max_items", ".max_pairs", ".lt", ".lte"]) =>
        {
            now >= before
        }
        _ if ends(&LOOSENING) => now == "true",
        _ => before == "true" && now == "false",
    }
}

/// The additions and new marks of packages that have a next version in the set, which must have them, too.
pub(crate) fn next_versions(facts: &Facts, baseline: &Baseline) -> Vec<Violation> {
    let versions: BTreeMap<&str, PackageVersion> =
        facts.packages.iter().filter_map(|name| Some((&**name, PackageVersion::of(name)?))).collect();
    let mut violations = Vec::new();
    for (key, fact) in baseline.additions(facts) {
        let (kind, element, _) = parts(key);
        let Some(package) = facts.files.get(&fact.file).map(|file| &*file.package) else { continue };
        let Some(own) = versions.get(package) else { continue };
        let next = versions.iter().find(|(_, other)| {
            other.api == own.api && other.major == own.major + 1 && other.stability == Stability::Alpha
        });
        let Some((next, _)) = next else { continue };
        // Packages that are new themselves have nothing to repeat.
        if !baseline.files.values().any(|file| file.package == package) {
            continue;
        }
        let there = format!("{next}{}", &element[package.len()..]);
        let exists = |kind: &str| facts.facts.contains_key(&format!("{kind} {there}"));
        let reason = match kind {
            _ if !element.starts_with(package) => continue,
            "deprecated" if ["field", "value"].into_iter().any(exists) => {
                format!("is deprecated, and {there} still exists; remove it there")
            }
            "field" | "value" | "message" | "enum" | "method" | "service"
                if !exists(kind) && !facts.facts.contains_key(&format!("deprecated {element}")) =>
            {
                format!("is new, and {next} lacks it; add {there}")
            }
            _ => continue,
        };
        violations.push(Violation::new(Rule::NextVersion, element, (&fact.file, fact.line), reason));
    }
    violations
}
