//! Violations of the policy.

use std::{fmt, str::FromStr};

use serde::{
    Deserialize, Serialize,
    de::{IntoDeserializer as _, value},
};

/// A rule of the versioning policy, displayed as exceptions name it, `package-name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Rule {
    /// A published element is gone, before its deprecation ended.
    Removed,
    /// A published element has another name.
    Renamed,
    /// A published fact reads otherwise.
    Changed,
    /// A number or name of a removed element can be used again.
    Reserved,
    /// Values that were valid are rejected: a rule of validation is new or different.
    Validation,
    /// A mark of deprecation is gone, or has another version.
    Mark,
    /// A package's name has no version at its end, or is not well-formed.
    PackageName,
    /// Something refers to a less stable package.
    LessStable,
    /// The latest stable version of an API refers to another API, but not to its latest version.
    NotLatest,
    /// A package depends on more than one version of an API.
    OneDefinition,
    /// The version of a file is not raised by its change, or is not a version.
    Version,
    /// The next major version lacks an addition, or still has deprecated elements.
    NextVersion,
    /// A compatible change is not in the baseline yet.
    NotRecorded,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A violation that was decided: a rule, and the element that may break it. Written `removed a.v1.M.n`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Exception {
    /// The rule.
    pub rule: Rule,
    /// The element, package or file.
    pub element: String,
}

/// A text that is not an exception.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an exception; write it like \"removed a.v1.Message.field\": {reason}")]
pub struct ExceptionError {
    text: String,
    reason: String,
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.rule, self.element)
    }
}

impl FromStr for Exception {
    type Err = ExceptionError;

    fn from_str(text: &str) -> Result<Self, ExceptionError> {
        let (name, element) = text.split_once(' ').unwrap_or((text, ""));
        let element = element.trim();
        let rule: Result<_, value::Error> = Rule::deserialize(name.into_deserializer());
        match rule {
            Ok(rule) if !element.is_empty() => Ok(Self { rule, element: element.to_owned() }),
            Ok(_) => {
                Err(ExceptionError { text: text.to_owned(), reason: "the element is missing".to_owned() })
            }
            Err(error) => Err(ExceptionError { text: text.to_owned(), reason: error.to_string() }),
        }
    }
}

/// Something that breaks a rule, displayed as `a.proto:3: error: a.v1.M.n: reason (rule)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The element, package or file.
    pub element: String,
    /// The file, by its import path; empty if the element is gone.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// The line, from 1; 0 if it is not known.
    #[serde(skip_serializing_if = "is_zero")]
    pub line: u32,
    /// A description, with the correction.
    pub reason: String,
}

impl Violation {
    /// Creates the violation of a rule by an element, at a line of a file.
    pub(crate) fn new(rule: Rule, element: &str, (file, line): (&str, u32), reason: String) -> Self {
        Self { rule, element: element.to_owned(), file: file.to_owned(), line, reason }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde calls")]
fn is_zero(line: &u32) -> bool {
    *line == 0
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.file, self.line) {
            ("", _) => {}
            (file, 0) => write!(f, "{file}: ")?,
            (file, line) => write!(f, "{file}:{line}: ")?,
        }
        write!(f, "error: {}: {} ({})", self.element, self.reason, self.rule)
    }
}
