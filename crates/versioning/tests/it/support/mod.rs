//! Protos of a test, written to a folder.
#![allow(dead_code, reason = "not every test uses all of it")]

use std::{fs, path::Path};

use mixer_adapter_versioning::{Baseline, ProtoSet, Violation, check, record};
use tempfile::TempDir;

/// A folder with protos.
pub(crate) struct Protos {
    folder: TempDir,
}

impl Protos {
    /// Writes files, given by their import paths and texts without the syntax.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let protos = Self { folder: tempfile::tempdir().unwrap() };
        for (name, text) in files {
            protos.write(name, text);
        }
        protos
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let syntax = if text.starts_with("syntax") { "" } else { "syntax = \"proto3\"; " };
        fs::write(path, format!("{syntax}{text}")).unwrap();
    }

    /// Replaces a text that must be in the file.
    pub(crate) fn edit(&self, name: &str, from: &str, to: &str) {
        let text = fs::read_to_string(self.path().join(name)).unwrap();
        assert!(text.contains(from), "{name} lacks {from:?}");
        fs::write(self.path().join(name), text.replace(from, to)).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn set(&self) -> ProtoSet {
        ProtoSet::open(&[self.path()], &[]).unwrap()
    }

    /// The baseline of the current protos.
    pub(crate) fn published(&self, release: Option<&str>) -> Baseline {
        let mut baseline = Baseline::default();
        self.publish(&mut baseline, release);
        baseline
    }

    pub(crate) fn publish(&self, baseline: &mut Baseline, release: Option<&str>) {
        let release = release.map(|release| release.parse().unwrap());
        record(&self.set(), baseline, release).unwrap();
        // What is published is a text.
        *baseline = baseline.to_string().parse().unwrap();
    }

    /// The violations, each as its rule and element, sorted.
    pub(crate) fn check(&self, baseline: &Baseline, release: Option<&str>) -> Vec<String> {
        let violations = check(&self.set(), baseline, release.map(|release| release.parse().unwrap()));
        let mut names: Vec<_> = violations.iter().map(named).collect();
        names.sort();
        names
    }
}

/// The rule and the element of a violation: `removed a.v1.M.n`.
pub(crate) fn named(violation: &Violation) -> String {
    format!("{} {}", violation.rule, violation.element)
}
