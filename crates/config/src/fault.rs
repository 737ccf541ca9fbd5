use std::{fmt, sync::Arc};

use super::ResourceName;

/// Where something was read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// A file's path, or the address of what served it.
    pub source: Arc<str>,
    /// The line, from 1; 0 where there are no lines.
    pub line: u32,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.source),
            line => write!(f, "{}:{line}", self.source),
        }
    }
}

/// Whether what is at fault can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// It works, but not as its author may think, or not with a real Mixer.
    Warning,
    /// It cannot be used: the whole configuration is refused or, in lenient mode, this piece is skipped.
    Error,
}

/// What a fault is about, where it is decided apart from the others what becomes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Topic {
    /// The configuration itself.
    #[default]
    Configuration,
    /// A field that is not known here.
    UnknownField,
    /// A field that is deprecated.
    DeprecatedField,
}

/// One thing that is wrong with a configuration: what, where, and what to do.
///
/// Reads as `dir/rules.yaml:12: r1.rule.istio-system: spec.actions[0].handler: there is no handler h1`; warnings say so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// How bad it is.
    pub severity: Severity,
    /// What it is about.
    pub topic: Topic,
    /// The resource, where it is known.
    pub resource: Option<ResourceName>,
    /// The file and the line, where they are known.
    pub origin: Option<Origin>,
    /// The path of the field in the resource, `spec.actions[0].handler`; empty for the whole.
    pub field: Box<str>,
    /// What is wrong and what would be right.
    pub reason: Box<str>,
}

impl Fault {
    /// An error about nothing in particular yet.
    pub fn error(reason: impl Into<Box<str>>) -> Self {
        let severity = Severity::Error;
        let (topic, field) = (Topic::default(), Box::default());
        Self { severity, topic, resource: None, origin: None, field, reason: reason.into() }
    }

    /// A warning about nothing in particular yet.
    pub fn warning(reason: impl Into<Box<str>>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(reason) }
    }

    /// The same, found there.
    #[must_use]
    pub fn at(self, source: &Arc<str>, line: u32) -> Self {
        Self { origin: Some(Origin { source: source.clone(), line }), ..self }
    }

    /// The same, about that field.
    #[must_use]
    pub fn in_field(self, field: impl Into<Box<str>>) -> Self {
        Self { field: field.into(), ..self }
    }

    /// The same, about that resource.
    #[must_use]
    pub fn of(self, resource: ResourceName) -> Self {
        Self { resource: Some(resource), ..self }
    }

    /// Whether it is an error.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }
}

impl fmt::Display for Fault {
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
        f.write_str(&self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn a_fault_says_where_what_and_why() {
        let source = Arc::from("dir/rules.yaml");
        let rule = ResourceName::new("r1", Kind::Rule, "ns");
        let fault =
            Fault::error("no such handler").of(rule).in_field("spec.actions[0].handler").at(&source, 12);
        assert_eq!(
            fault.to_string(),
            "dir/rules.yaml:12: r1.rule.ns: spec.actions[0].handler: no such handler"
        );
        assert_eq!(Fault::warning("odd").at(&source, 0).to_string(), "dir/rules.yaml: warning: odd");
    }
}
