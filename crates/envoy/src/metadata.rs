//! Metadata of answers, which Envoy passes to the access log and to later filters.

use mixer_adapter_engine::{
    AnswerKey, CheckOutcome, QuotaMode,
    dispatch::{CacheUse, QuotaDimensions},
};
use prost_types::{ListValue, Struct, Value, value::Kind};

use crate::{
    authorization::Origin,
    outcome::RateLimitOutcome,
    rate_limit::{DescriptorResult, Verdict},
};

/// The key of the metadata of this server, and the metadata namespace of attributes.
pub(crate) const METADATA: &str = "mixer_adapter";

/// Longest output of an adapter that is in the metadata, in bytes.
const MAX_OUTPUT: usize = 4_096;

/// Returns the metadata of a decision on a request of `principal`. All of it is below one key, because filters of one kind share a namespace.
pub(crate) fn decision_metadata(
    id: &str,
    outcome: CheckOutcome,
    denial: Option<(i32, &str)>,
    principal: &str,
    origin: &Origin,
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
    let Origin { details, cache, .. } = origin;
    if !details.rules.is_empty() {
        fields.push(("rules", text(&details.rules.join(","))));
    }
    let outputs: Vec<_> = details.outputs.iter().filter(|(_, value)| value.len() <= MAX_OUTPUT).collect();
    if !outputs.is_empty() {
        fields.push(("outputs", structure(outputs.into_iter().map(|(name, value)| (&**name, text(value))))));
    }
    if !details.dimensions.is_empty() {
        let quotas = details.dimensions.iter().map(|QuotaDimensions { quota, values }| {
            (&**quota, structure(values.iter().map(|(name, value)| (&**name, text(value)))))
        });
        fields.push(("dimensions", structure(quotas)));
    }
    fields.extend(cache.as_ref().map(|cache| ("cache", cache_metadata(cache))));
    under_own_key(fields)
}

/// Returns the metadata of a rate limit decision, with the quotas by what happens past their limits.
pub(crate) fn quota_metadata(id: &str, outcome: RateLimitOutcome, results: &[DescriptorResult]) -> Struct {
    let mut fields =
        vec![("decision_id", text(id)), ("outcome", text(RateLimitOutcome::NAMES[outcome as usize]))];
    for (name, mode) in [
        ("over_limit", QuotaMode::Enforce),
        ("over_soft_limit", QuotaMode::Soft),
        ("over_shadow_limit", QuotaMode::Shadow),
    ] {
        let quotas = results.iter().filter(|result| result.verdict == Verdict::Over(mode));
        let quotas: Vec<&str> = quotas.filter_map(|result| result.quota.as_deref()).collect();
        if !quotas.is_empty() {
            fields.push((name, text(&quotas.join(","))));
        }
    }
    under_own_key(fields)
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

fn structure<'f>(fields: impl IntoIterator<Item = (&'f str, Value)>) -> Value {
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
    Value { kind: Some(Kind::StructValue(Struct { fields: fields.collect() })) }
}

fn text(value: &str) -> Value {
    Value { kind: Some(Kind::StringValue(value.to_owned())) }
}
