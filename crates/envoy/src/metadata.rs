//! Metadata of answers, which Envoy passes to the access log and to later filters.

use mixer_adapter_engine::{AnswerKey, CheckOutcome, dispatch::CacheUse};
use prost_types::{ListValue, Struct, Value, value::Kind};

/// The key of the metadata of this server, and the metadata namespace of attributes.
pub(crate) const METADATA: &str = "mixer_adapter";

/// Returns the metadata of a decision on a request of `principal`. All of it is below one key, because filters of one kind share a namespace.
pub(crate) fn decision_metadata(
    id: &str,
    outcome: CheckOutcome,
    denial: Option<(i32, &str)>,
    principal: &str,
    cache: Option<&CacheUse>,
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
    fields.extend(cache.map(|cache| ("cache", cache_metadata(cache))));
    under_own_key(fields)
}

/// Returns the metadata of a rate limit decision.
pub(crate) fn quota_metadata(id: &str) -> Struct {
    under_own_key(vec![("decision_id", text(id))])
}

/// How the cache was used, and the life and the key of the answer: names of attributes, without their values.
fn cache_metadata(cache: &CacheUse) -> Value {
    let mut fields = vec![("outcome", text(cache.outcome.name()))];
    if let Some(AnswerKey { valid_for, names }) = &cache.key {
        let names = names.iter().take(MAX_NAMES).map(|name| text(name));
        let key = Kind::ListValue(ListValue { values: names.collect() });
        fields.push(("valid_for_seconds", Value { kind: Some(Kind::NumberValue(valid_for.as_secs_f64())) }));
        fields.push(("key", Value { kind: Some(key) }));
    }
    structure(fields)
}

/// Maximum number of names in the metadata of an answer.
const MAX_NAMES: usize = 32;

fn under_own_key(fields: Vec<(&str, Value)>) -> Struct {
    Struct { fields: [(METADATA.to_owned(), structure(fields))].into_iter().collect() }
}

fn structure(fields: Vec<(&str, Value)>) -> Value {
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
    Value { kind: Some(Kind::StructValue(Struct { fields: fields.collect() })) }
}

fn text(value: &str) -> Value {
    Value { kind: Some(Kind::StringValue(value.to_owned())) }
}
