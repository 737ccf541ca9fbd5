//! The schedule of deprecations: the effect of using a deprecated element, by the releases since its mark.

use std::fmt::Write as _;

use crate::{
    baseline::Baseline,
    facts::parts,
    version::{SemanticVersion, Stage},
};

/// Returns the effect of using an element in a stage.
pub(crate) const fn verb(stage: Stage) -> &'static str {
    match stage {
        Stage::Warns => "warns",
        Stage::Fails => "fails",
        Stage::Gone => "ends",
    }
}

impl Baseline {
    /// Returns the text of DEPRECATED.md: every deprecated element with the releases in which its use warns, fails, and ends.
    pub fn deprecations(&self) -> String {
        let mut text = String::from(
            "# Deprecated\n\nWritten by `mixer-adapter proto baseline`. The use of an element is a warning first, then an error unless it \
             is allowed by name,\nand then the element is gone.\n",
        );
        let marks = self.facts.iter().filter_map(|(key, value)| match parts(key) {
            ("deprecated", element, _) => Some((value.parse::<SemanticVersion>().ok()?, element)),
            _ => None,
        });
        let mut marks: Vec<_> = marks.collect();
        marks.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(other.1)));
        if marks.is_empty() {
            text.push_str("\nNothing is deprecated.\n");
            return text;
        }
        text.push_str("\n| element | warns since | fails since | gone in |\n|---|---|---|---|\n");
        for (mark, element) in marks {
            let [warns, fails, gone] =
                [Stage::Warns, Stage::Fails, Stage::Gone].map(|stage| stage.begins(mark));
            // The release of the mark may have been a patch.
            let _ = writeln!(text, "| `{element}` | {} | {fails} | {gone} |", warns.max(mark));
        }
        text
    }
}
