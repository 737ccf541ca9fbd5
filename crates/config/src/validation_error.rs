use std::{fmt, path::Path, sync::Arc};

use mixer_adapter_core::framework::version::Stage;

use crate::name::ResourceName;

/// The position where something was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Origin {
    /// The path of a file, or the address of a server.
    pub source: Arc<str>,
    /// The line, from 1; 0 if there are no lines.
    pub line: u32,
    /// The column in characters, from 1; 0 if it is unknown.
    pub column: u32,
}

/// A line and a column of a text, from 1; 0 if they are unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub line: u32,
    pub column: u32,
}

impl From<u32> for Position {
    fn from(line: u32) -> Self {
        Self { line, column: 0 }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.source),
            line => write!(f, "{}:{line}", self.source),
        }
    }
}

/// Whether the faulty part can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// It works, but with another effect than its author may expect, or differently in a real Mixer.
    Warning,
    /// It cannot be used: the whole configuration is refused or, in lenient mode, this piece is skipped.
    Error,
}

/// The subject of a fault, if it is treated in another way than other faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Topic {
    /// The configuration itself.
    #[default]
    Configuration,
    /// An unknown field.
    UnknownField,
    /// A field that is deprecated.
    DeprecatedField,
    /// A constant that cannot be evaluated: only the requests that need it fail.
    InvalidConstant,
}

/// A part of the text of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The whole text.
    pub text: Box<str>,
    /// The offset of the part's first byte.
    pub start: usize,
    /// The offset after its last byte; equal to `start` for a position between two characters.
    pub end: usize,
}

impl Excerpt {
    /// The part; empty if the offsets are not within the text.
    pub fn marked(&self) -> &str {
        self.text.get(self.start..self.end).unwrap_or_default()
    }
}

/// A fault of a configuration: a place, a reason, and a correction.
///
/// Its text is `dir/rules.yaml:12: r1.rule.istio-system: spec.actions[0].handler: there is no handler h1`; the text of
/// a warning says so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub struct ValidationError {
    /// The severity.
    pub severity: Severity,
    /// The subject.
    pub topic: Topic,
    /// The resource, if it is known.
    pub resource: Option<ResourceName>,
    /// The file and the line, if they are known.
    pub origin: Option<Origin>,
    /// The path of the field in the resource, `spec.actions[0].handler`; empty for the whole.
    pub field: Box<str>,
    /// The fault, and what would be correct.
    pub reason: Box<str>,
    /// The correction, if the reason does not have it: `did you mean x?`.
    pub help: Option<Box<str>>,
    /// The part of the field's text that is wrong.
    pub excerpt: Option<Box<Excerpt>>,
    /// The deprecated field or value, if it is about one.
    pub deprecation: Option<Box<Deprecation>>,
}

/// The use of a deprecated field or value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deprecation {
    /// Its full name, which can be allowed: `shop.v1.Params.old`.
    pub element: String,
    /// The stage of its deprecation.
    pub stage: Stage,
}

impl ValidationError {
    /// Creates an error without a position.
    pub fn error(reason: impl Into<Box<str>>) -> Self {
        Self {
            severity: Severity::Error,
            topic: Topic::default(),
            resource: None,
            origin: None,
            field: Box::default(),
            reason: reason.into(),
            help: None,
            excerpt: None,
            deprecation: None,
        }
    }

    /// Creates a warning without a position.
    pub fn warning(reason: impl Into<Box<str>>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(reason) }
    }

    /// Sets the position.
    #[must_use]
    pub(super) fn at(self, source: &Arc<str>, position: impl Into<Position>) -> Self {
        let Position { line, column } = position.into();
        Self { origin: Some(Origin { source: source.clone(), line, column }), ..self }
    }

    /// Sets the file.
    #[must_use]
    pub fn in_file(self, path: &Path) -> Self {
        self.at(&path.display().to_string().into(), 0)
    }

    /// Sets the field.
    #[must_use]
    pub fn in_field(self, field: impl Into<Box<str>>) -> Self {
        Self { field: field.into(), ..self }
    }

    /// Sets the faulty part of the field's text.
    #[must_use]
    pub fn in_excerpt(self, excerpt: Excerpt) -> Self {
        Self { excerpt: Some(excerpt.into()), ..self }
    }

    /// Sets the correction.
    #[must_use]
    pub fn with_help(self, help: impl Into<Box<str>>) -> Self {
        Self { help: Some(help.into()), ..self }
    }

    /// Sets the topic.
    #[must_use]
    pub fn on(self, topic: Topic) -> Self {
        Self { topic, ..self }
    }

    /// Sets the resource.
    #[must_use]
    pub fn of(self, resource: ResourceName) -> Self {
        Self { resource: Some(resource), ..self }
    }

    /// Returns whether it is an error.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for ValidationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        if self.severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        if let Some(resource) = &self.resource {
            write!(f, "{resource}: ")?;
        }
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.reason)?;
        if let Some(help) = &self.help {
            write!(f, "; {help}")?;
        }
        match &self.excerpt {
            Some(excerpt) if excerpt.marked().is_empty() => {
                let before = excerpt.text.get(..excerpt.start).unwrap_or_default();
                write!(f, " (at character {} of `{}`)", before.chars().count() + 1, excerpt.text)
            }
            Some(excerpt) if !self.reason.contains(excerpt.marked()) => {
                write!(f, " (in `{}`)", excerpt.marked())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Kind;

    #[test]
    fn a_fault_says_where_what_and_why() {
        let source = Arc::from("dir/rules.yaml");
        let rule = ResourceName::new("r1", Kind::Rule, "ns");
        let fault = ValidationError::error("no such handler")
            .of(rule)
            .in_field("spec.actions[0].handler")
            .at(&source, 12);
        assert_eq!(
            fault.to_string(),
            "dir/rules.yaml:12: r1.rule.ns: spec.actions[0].handler: no such handler"
        );
        let excerpt = |start, end| Excerpt { text: "a = b".into(), start, end };
        let fault = ValidationError::error("no value").with_help("write 5").in_excerpt(excerpt(4, 5));
        assert_eq!(fault.to_string(), "no value; write 5 (in `b`)");
        let named = ValidationError::error("unknown attribute `b`").in_excerpt(excerpt(4, 5));
        assert_eq!(named.to_string(), "unknown attribute `b`");
        let between = ValidationError::error("incomplete").in_excerpt(excerpt(5, 5));
        assert_eq!(between.to_string(), "incomplete (at character 6 of `a = b`)");
        assert_eq!(
            ValidationError::warning("odd").at(&source, 0).to_string(),
            "dir/rules.yaml: warning: odd"
        );
    }
}
