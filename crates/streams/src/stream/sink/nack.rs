//! The reason of a NACK.

use crate::stream::name::full_name;
use mixer_adapter_config::{Collection, Kind, ValidationError, join_texts};

/// The reasons why a push is refused; the text has the first ones, and the number of the others. All of it is, unless invalid resources are skipped and every reason names one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", join_texts(.reasons.iter().map(ToString::to_string)))]
pub struct NackError {
    /// The reasons, at least one.
    pub reasons: Vec<ResourceError>,
}

/// A fault of a resource of a push, or of the push.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{text}", if resource.is_empty() { String::new() } else { format!("{resource}: ") })]
pub struct ResourceError {
    /// The name of the resource; empty if the reason concerns more than one.
    pub resource: String,
    /// The fault, for the author of the resource.
    pub text: String,
}

impl NackError {
    /// Refuses a push for a reason that is not about a single resource.
    pub fn whole(text: impl Into<String>) -> Self {
        Self { reasons: vec![ResourceError { resource: String::new(), text: text.into() }] }
    }

    /// Refuses a push of a collection for the errors among these faults. Resources of the collection are named, so that
    /// they can be skipped; faults of others are described in full.
    pub fn new(collection: &str, faults: &[ValidationError]) -> Self {
        let kind = Collection::new(collection).kind();
        let reasons: Vec<_> = faults
            .iter()
            .filter(|fault| fault.is_error())
            .map(|fault| match &fault.resource {
                // In other collections the body determines the kind.
                Some(name)
                    if kind
                        .as_ref()
                        .map_or(matches!(name.kind(), Kind::Other(_)), |kind| kind == name.kind()) =>
                {
                    let field =
                        if fault.field.is_empty() { String::new() } else { format!("{}: ", fault.field) };
                    ResourceError { resource: full_name(name), text: format!("{field}{}", fault.reason) }
                }
                _ => ResourceError { resource: String::new(), text: fault.to_string() },
            })
            .collect();
        if reasons.is_empty() { Self::whole("it was refused without a reason") } else { Self { reasons } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mixer_adapter_config::ResourceName;

    const RULES: &str = "istio/policy/v1beta1/rules";

    #[test]
    fn the_text_lists_the_first_reasons_and_counts_the_rest() {
        let nack = |count: usize, length: usize| {
            NackError {
                reasons: (1..=count)
                    .map(|n| ResourceError { resource: format!("ns/{n}"), text: "x".repeat(length) })
                    .collect(),
            }
            .to_string()
        };
        assert_eq!(nack(2, 3), "ns/1: xxx; ns/2: xxx");
        let text = nack(100_000, 100);
        assert!(text.len() <= 2_000 && text.ends_with(" more"), "{text}");
        assert_eq!(NackError::whole("no").to_string(), "no");
    }

    #[test]
    fn resources_of_the_collection_are_named_and_others_described() {
        let rule = ResourceName::new("r", Kind::Rule, "ns");
        let handler = ResourceName::new("h", Kind::Handler, "ns");
        let faults = [
            ValidationError::error("no such attribute").of(rule).in_field("spec.match"),
            ValidationError::error("no such adapter").of(handler),
            ValidationError::warning("odd"),
        ];
        let nack = NackError::new(RULES, &faults);
        let reasons = nack.reasons.iter().map(|reason| (reason.resource.as_str(), reason.text.as_str()));
        assert_eq!(
            reasons.collect::<Vec<_>>(),
            [("ns/r", "spec.match: no such attribute"), ("", "h.handler.ns: no such adapter")]
        );
    }
}
