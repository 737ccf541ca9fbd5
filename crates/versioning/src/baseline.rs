//! The published facts of protos, as a text file with one fact a line.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use crate::{
    facts::{Fact, Facts, line},
    version::{PackageVersion, SemanticVersion, first},
    violation::{Exception, Rule},
};

/// The published state of protos: their facts, the version and hash of each file, and the exceptions that were decided.
///
/// Its text is sorted, so that a review shows a change of the protos as lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    pub(crate) facts: BTreeMap<String, String>,
    pub(crate) files: BTreeMap<String, PublishedFile>,
    exceptions: BTreeSet<Exception>,
    /// Alpha packages that do not change.
    pub(crate) held: BTreeSet<String>,
}

/// A file as it was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublishedFile {
    pub(crate) package: String,
    pub(crate) syntax: String,
    pub(crate) version: SemanticVersion,
    pub(crate) hash: String,
}

/// A text that is not a baseline.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: not a fact of a baseline: {text:?}")]
pub struct BaselineError {
    line: usize,
    text: String,
}

impl Baseline {
    /// Returns the baseline of protos that nothing was published of before.
    pub fn of(set: &crate::ProtoSet) -> Self {
        let mut baseline = Self::default();
        baseline.update(&Facts::of(set, &baseline.held), None);
        baseline
    }

    /// Adds an exception, which [`check`](crate::check) then does not report.
    pub fn add_exception(&mut self, exception: Exception) {
        self.exceptions.insert(exception);
    }

    /// Holds an alpha package to the baseline as if it were stable: for packages that others publish and use.
    pub fn hold(&mut self, package: impl Into<String>) {
        self.held.insert(package.into());
    }

    /// Whether a violation of the rule by the element was decided.
    pub(crate) fn allows(&self, rule: Rule, element: &str) -> bool {
        self.exceptions.iter().any(|exception| exception.rule == rule && exception.element == element)
    }

    /// Takes over the facts of protos. Marks of deprecation get `release` as their version where they state none, else the version
    /// of their file. The version of a changed file is raised, unless the file states one.
    pub(crate) fn update(&mut self, facts: &Facts, release: Option<SemanticVersion>) {
        let files = facts.files.iter().map(|(name, file)| {
            let version = self.version_of(name, facts);
            let published = PublishedFile {
                package: file.package.clone(),
                syntax: file.syntax.clone(),
                version: file.version.unwrap_or(version),
                hash: file.hash.clone(),
            };
            (name.clone(), published)
        });
        let files: BTreeMap<_, _> = files.collect();
        let mut published = BTreeMap::new();
        for (key, fact) in facts.facts.iter().filter(|(_, fact)| !fact.free) {
            let mut value = fact.value.clone();
            if key.starts_with("deprecated ") && value.is_empty() {
                let file = files.get(&fact.file).map(|file| file.version);
                let now = release.or(file).unwrap_or_default().to_string();
                value = self.facts.get(key).cloned().unwrap_or(now);
            }
            published.insert(key.clone(), value);
        }
        (self.files, self.facts) = (files, published);
    }

    /// Returns the version that a file needs after its change: the version in the baseline, raised by additions or
    /// other changes.
    pub(crate) fn version_of(&self, name: &str, facts: &Facts) -> SemanticVersion {
        let Some(file) = facts.files.get(name) else { return SemanticVersion::default() };
        match self.files.get(name) {
            None => first(PackageVersion::of(&file.package).map_or(1, |version| version.major)),
            Some(published) if published.hash == file.hash => published.version,
            Some(PublishedFile { version, .. })
                if self.additions(facts).any(|(_, fact)| fact.file == name) =>
            {
                SemanticVersion { minor: version.minor + 1, patch: 0, ..*version }
            }
            Some(PublishedFile { version, .. }) => SemanticVersion { patch: version.patch + 1, ..*version },
        }
    }

    /// Returns the facts that are published for the first time.
    pub(crate) fn additions<'f>(&self, facts: &'f Facts) -> impl Iterator<Item = (&'f String, &'f Fact)> {
        facts.facts.iter().filter(move |(key, fact)| !fact.free && !self.facts.contains_key(*key))
    }
}

impl fmt::Display for Baseline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = BTreeSet::new();
        for (name, PublishedFile { package, syntax, version, hash }) in &self.files {
            lines.insert(format!("file {name} = {package} {syntax} {version} {hash}"));
        }
        lines.extend(self.facts.iter().map(|(key, value)| line(key, value)));
        lines.extend(self.exceptions.iter().map(|exception| format!("allow {exception}")));
        lines.extend(self.held.iter().map(|package| format!("hold {package}")));
        lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

impl Baseline {
    /// Adds a line of the file; `None` if it is not valid.
    fn add_line(&mut self, line: &str) -> Option<()> {
        let (key, value) = line.split_once(" = ").unwrap_or((line, ""));
        let (kind, element) = key.split_once(' ')?;
        match kind {
            "file" => _ = self.files.insert(element.to_owned(), published_file(value)?),
            "hold" => self.hold(element),
            "allow" => _ = self.exceptions.insert(element.parse().ok()?),
            _ => _ = self.facts.insert(key.to_owned(), value.to_owned()),
        }
        Some(())
    }
}

impl FromStr for Baseline {
    type Err = BaselineError;

    fn from_str(text: &str) -> Result<Self, BaselineError> {
        let mut baseline = Self::default();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            baseline
                .add_line(line)
                .ok_or_else(|| BaselineError { line: number + 1, text: line.to_owned() })?;
        }
        Ok(baseline)
    }
}

fn published_file(text: &str) -> Option<PublishedFile> {
    let mut words = text.rsplit(' ');
    let (hash, version, syntax) = (words.next()?, words.next()?, words.next()?);
    let package = words.next().unwrap_or_default();
    let version = version.parse().ok()?;
    (words.next().is_none() && !hash.is_empty()).then(|| PublishedFile {
        package: package.to_owned(),
        syntax: syntax.to_owned(),
        version,
        hash: hash.to_owned(),
    })
}
