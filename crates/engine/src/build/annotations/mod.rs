//! Annotations of this project, whose names begin with `mixer-adapter/`.

mod denial;
mod quotas;
mod rules;

use mixer_adapter_config::{Resource, ValidationError};

pub(super) use denial::denial_form;
pub(super) use quotas::quota_settings;
pub(super) use rules::{SHADOW_ACTIONS, ShadowedActions, rule_settings};

/// The prefix of this project's annotations.
const PREFIX: &str = "mixer-adapter/";

/// The annotations of a resource, and the errors in annotations of this project.
struct Annotations<'a> {
    resource: &'a Resource,
    errors: Vec<ValidationError>,
}

impl<'a> Annotations<'a> {
    /// Begins to read the annotations of a resource of a kind, for which this project defines `known`.
    fn new(resource: &'a Resource, kind: &str, known: &[&str]) -> Self {
        let names = resource.annotations.keys();
        let unknown = names.filter(|name| name.starts_with(PREFIX) && !known.contains(&name.as_str()));
        let errors = unknown.map(|name| {
            let help = if known.is_empty() { "" } else { "; write one of " };
            let reason = format!("unknown annotation of {kind}{help}{}", known.join(", "));
            resource.annotation_error(name, reason)
        });
        Self { resource, errors: errors.collect() }
    }

    /// Returns the value of an annotation; `None` if it is absent or not valid.
    fn read<T>(&mut self, name: &str, expected: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let value = self.resource.annotations.get(name)?;
        let parsed = parse(value);
        if parsed.is_none() {
            // Without the value, which may be secret.
            let reason = format!("the value is not valid; write {expected}");
            self.errors.push(self.resource.annotation_error(name, reason));
        }
        parsed
    }
}
