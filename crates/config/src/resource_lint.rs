//! A resource that is valid but probably has another effect than intended.

use serde_json::{Map, Value as Json};

use crate::{
    evolution::Finding,
    lines::step,
    resource::Resource,
    spec::{Spec, Target},
    validation_error::ValidationError,
};

/// Finds the traps of a resource. `spec` is absent if it is invalid.
pub(crate) fn lint_resource(
    resource: &Resource,
    spec: Option<&Spec>,
    foreign: &[Finding],
) -> Vec<ValidationError> {
    let mut faults: Vec<_> = foreign.iter().map(|finding| resource.finding(finding, "")).collect();
    let name = resource.name.name();
    if resource.is_received() && !name.split('.').all(is_dns_label) {
        let reason = format!("the name {name:?} is not made of DNS labels: no resource of Kubernetes has it");
        faults.push(resource.warning("", reason));
    }
    if let Some(Spec::Instance(instance)) = spec {
        match &instance.params {
            None => {
                let reason = "read as {}; a real Mixer dies at the first request, so write params: {}";
                faults.push(resource.warning("params", reason));
            }
            Some(params) if matches!(instance.template, Target::Resource(_)) => {
                quotes_within_quotes(resource, params, &mut faults);
            }
            Some(_) => {}
        }
    }
    faults
}

fn is_dns_label(text: &str) -> bool {
    (1..=63).contains(&text.len())
        && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A string that begins and ends with the same quote is a literal to its end, whatever is between
/// (docs/behaviour/configuration.md#params-of-instances-template).
fn quotes_within_quotes(resource: &Resource, params: &Map<String, Json>, faults: &mut Vec<ValidationError>) {
    let mut open: Vec<(String, &Json)> =
        params.iter().map(|(name, value)| (format!("params{}", step(name)), value)).collect();
    while let Some((path, value)) = open.pop() {
        match value {
            Json::String(text) => {
                if let Some(reason) = odd_literal(text) {
                    faults.push(resource.warning(&path, reason));
                }
            }
            Json::Object(fields) => {
                open.extend(fields.iter().map(|(name, value)| (format!("{path}{}", step(name)), value)));
            }
            Json::Array(items) => {
                open.extend(
                    items.iter().enumerate().map(|(index, value)| (format!("{path}[{index}]"), value)),
                );
            }
            _ => {}
        }
    }
}

/// Describes a text that is suspicious as a literal.
fn odd_literal(text: &str) -> Option<String> {
    let quote = text.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
    let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
    let mut escaped = false;
    let ends_within = inner.chars().any(|letter| {
        let ends = letter == quote && !escaped;
        escaped = letter == '\\' && !escaped;
        ends
    });
    if ends_within {
        return Some(format!(
            "is not an expression but the literal text {inner}, because it begins and ends with {quote}; put it in \
             parentheses if an expression is meant"
        ));
    }
    inner
        .contains('\\')
        .then(|| format!("is the text {inner}, backslashes included: nothing is escaped here"))
}
