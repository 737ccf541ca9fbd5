//! Metadata of answers, which Envoy passes to the access log and to later filters.

use mixer_adapter_engine::CheckOutcome;
use prost_types::{Struct, Value, value::Kind};

/// The key of the metadata of this server, and the metadata namespace of attributes.
pub(crate) const METADATA: &str = "mixer_adapter";

/// Returns the metadata of a decision on a request of `principal`. All of it is below one key, because filters of one kind share a namespace.
pub(crate) fn decision_metadata(
    id: &str,
    outcome: CheckOutcome,
    denial: Option<(i32, &str)>,
    principal: &str,
) -> Struct {
    let mut fields =
        vec![("decision_id", text(id)), ("outcome", text(CheckOutcome::NAMES[outcome as usize]))];
    if let Some((code, message)) = denial {
        fields.push(("code", Value { kind: Some(Kind::NumberValue(f64::from(code))) }));
        fields.push(("message", text(message)));
    }
    if !principal.is_empty() {
        fields.push(("source_principal", text(principal)));
    }
    under_own_key(fields)
}

/// Returns the metadata of a rate limit decision.
pub(crate) fn quota_metadata(id: &str) -> Struct {
    under_own_key(vec![("decision_id", text(id))])
}

fn under_own_key(fields: Vec<(&str, Value)>) -> Struct {
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
    let own = Value { kind: Some(Kind::StructValue(Struct { fields: fields.collect() })) };
    Struct { fields: [(METADATA.to_owned(), own)].into_iter().collect() }
}

fn text(value: &str) -> Value {
    Value { kind: Some(Kind::StringValue(value.to_owned())) }
}
