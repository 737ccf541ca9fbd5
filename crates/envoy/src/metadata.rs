//! Metadata of answers, which Envoy passes to the access log and to later filters.

use mixer_adapter_engine::{
    CheckOutcome, QuotaMode,
    dispatch::{AnswerDetails, CacheUse, QuotaDimensions},
};

use crate::{
    outcome::RateLimitOutcome,
    rate_limit::descriptor::{DescriptorResult, Verdict},
    struct_writer::StructWriter,
};

/// The key of the metadata of this server, and the metadata namespace of attributes.
pub(crate) const METADATA: &str = "mixer_adapter";

/// Longest output of an adapter that is in the metadata, in bytes.
const MAX_OUTPUT: usize = 4_096;

/// Returns the encoded metadata of a decision on a request of `principal`: metadata of adapters, and the server's own below one key,
/// because filters of one kind share a namespace.
pub(crate) fn decision_metadata(
    id: &str,
    outcome: CheckOutcome,
    denial: Option<(i32, &str)>,
    principal: &str,
    details: &AnswerDetails,
    cache: Option<&CacheUse>,
) -> Vec<u8> {
    under_own_key(&details.metadata, |metadata| {
        metadata.text("decision_id", id);
        metadata.text("outcome", CheckOutcome::NAMES[outcome as usize]);
        if let Some((code, message)) = denial {
            metadata.number("code", f64::from(code));
            metadata.text("message", message);
        }
        if !principal.is_empty() {
            metadata.text("source_principal", principal);
        }
        let encoded = cache.and_then(|cache| cache.key.as_ref()).map(|key| {
            key.encoded.metadata.get_or_init(|| {
                [
                    entries(|metadata| write_details(metadata, details)),
                    entries(|metadata| {
                        metadata.texts("key", key.names.iter().take(MAX_NAMES).map(|name| &**name));
                    }),
                ]
            })
        });
        match encoded {
            Some([details, _]) => metadata.encoded(details),
            None => write_details(metadata, details),
        }
        if let Some(CacheUse { outcome, key, .. }) = cache {
            metadata.nested("cache", |metadata| {
                metadata.text("outcome", outcome.name());
                if let (Some(key), Some([_, names])) = (key, encoded) {
                    metadata.number("valid_for_seconds", key.valid_for.as_secs_f64());
                    // Names of attributes, without their values.
                    metadata.encoded(names);
                }
            });
        }
    })
}

fn entries(write: impl FnOnce(&mut StructWriter)) -> Box<[u8]> {
    let mut entries = StructWriter::new();
    write(&mut entries);
    entries.finish().into()
}

fn write_details(metadata: &mut StructWriter, details: &AnswerDetails) {
    if !details.failures.is_empty() {
        metadata.text("failures", &details.failures.to_string());
    }
    if !details.rules.is_empty() {
        metadata.text("rules", &details.rules.join(","));
    }
    let mut outputs = details.outputs.iter().filter(|(_, value)| value.len() <= MAX_OUTPUT).peekable();
    if outputs.peek().is_some() {
        metadata.nested("outputs", |metadata| {
            outputs.for_each(|(name, value)| metadata.text(name, value));
        });
    }
    if !details.dimensions.is_empty() {
        metadata.nested("dimensions", |metadata| {
            for QuotaDimensions { quota, values } in &details.dimensions {
                metadata.nested(quota, |metadata| {
                    values.iter().for_each(|(name, value)| metadata.text(name, value));
                });
            }
        });
    }
}

/// Returns the encoded metadata of a rate limit decision, with the quotas past their limits by mode.
pub(crate) fn quota_metadata(id: &str, outcome: RateLimitOutcome, results: &[DescriptorResult]) -> Vec<u8> {
    under_own_key(&[], |metadata| {
        metadata.text("decision_id", id);
        metadata.text("outcome", RateLimitOutcome::NAMES[outcome as usize]);
        for (name, mode) in [
            ("over_limit", QuotaMode::Enforce),
            ("over_soft_limit", QuotaMode::Soft),
            ("over_shadow_limit", QuotaMode::Shadow),
        ] {
            let quotas = results.iter().filter(|result| result.verdict == Verdict::Over(mode));
            let quotas: Vec<&str> = quotas.filter_map(|result| result.quota.as_deref()).collect();
            if !quotas.is_empty() {
                metadata.text(name, &quotas.join(","));
            }
        }
    })
}

/// Maximum number of names in the metadata of an answer.
const MAX_NAMES: usize = 32;

/// Writes below the own key, after other metadata: of several values of a key the last one applies.
fn under_own_key(others: &[u8], write: impl FnOnce(&mut StructWriter)) -> Vec<u8> {
    let mut metadata = StructWriter::after(others);
    metadata.nested(METADATA, write);
    metadata.finish()
}
