//! Annotations of this project, whose names begin with `mixer-adapter/`.

mod denial;
mod quotas;
mod rules;

use std::collections::BTreeMap;

use mixer_adapter_config::{Resource, ValidationError};

pub(super) use denial::denial_form;
pub(super) use quotas::quota_settings;
pub(super) use rules::{SHADOW_ACTIONS, ShadowedActions, rule_settings};

/// The prefix of this project's annotations.
const PREFIX: &str = "mixer-adapter/";

/// An annotation without effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum AnnotationError {
    #[error("unknown annotation of {kind}{}", listed(known))]
    Unknown { kind: &'static str, known: &'static [&'static str] },
    /// Without the value, which may be secret.
    #[error("the value is not valid; write {expected}")]
    Value { expected: &'static str },
}

fn listed(known: &[&str]) -> String {
    if known.is_empty() { String::new() } else { format!("; write one of {}", known.join(", ")) }
}

impl From<AnnotationError> for Box<str> {
    fn from(error: AnnotationError) -> Self {
        error.to_string().into()
    }
}

/// The annotations of a resource, and the errors in annotations of this project.
struct Annotations<'a> {
    all: &'a BTreeMap<String, String>,
    errors: Vec<(&'a str, AnnotationError)>,
}

impl<'a> Annotations<'a> {
    /// Begins to read the annotations of a resource of a kind, for which this project defines `known`.
    fn new(all: &'a BTreeMap<String, String>, kind: &'static str, known: &'static [&'static str]) -> Self {
        let unknown = all.keys().filter(|name| name.starts_with(PREFIX) && !known.contains(&name.as_str()));
        let errors = unknown.map(|name| (name.as_str(), AnnotationError::Unknown { kind, known }));
        Self { all, errors: errors.collect() }
    }

    /// Returns the value of an annotation; `None` if it is absent or not valid.
    fn read<T>(
        &mut self,
        name: &'static str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let value = self.all.get(name)?;
        let parsed = parse(value);
        if parsed.is_none() {
            self.errors.push((name, AnnotationError::Value { expected }));
        }
        parsed
    }
}

/// Returns the faults of annotations without effect.
fn faults(resource: &Resource, errors: Vec<(&str, AnnotationError)>) -> Vec<ValidationError> {
    errors.into_iter().map(|(name, error)| resource.annotation_error(name, error)).collect()
}
