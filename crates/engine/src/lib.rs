//! The engine of Mixer: evaluates rules for the attributes of a request, calls handlers with instances, and merges their
//! answers.
//!
//! # Features
//!
//! * `cel` (default): the languages CEL and COMPAT of rules and instances.
//! * `tls` (default): adapters called over TLS, with tokens and OAuth.

mod answer;
pub mod attribute;
pub mod build;
mod cache;
mod control;
mod counts;
mod decision_id;
pub mod decision_log;
mod denial;
pub mod dictionary;
pub mod dispatch;
mod engine;
pub mod expression;
mod failed_part;
mod handler;
mod instance;
mod limits;
mod output;
mod policy;
pub mod proto;
mod quota_settings;
mod references;
pub mod remote;
mod resource_counts;
mod rules;
mod sample;
mod shadow;
mod snapshot;
pub mod trace;
mod wire;

pub use cache::{
    AnswerKey, CacheCounts, CacheLimits, CacheOutcome, CachedChecks, EncodedParts, NamespaceCaching,
};
pub use control::{ConfigChange, ConfigStatus, Controller};
pub use counts::{CheckOutcome, Counts, QUOTA_OUTCOMES, REPORT_OUTCOMES, quota_outcome};
pub use decision_id::{DecisionIds, is_decision_id};
pub use engine::Mixer;
pub use failed_part::{FailedPart, FailedParts, FailureCause};
pub use handler::{Called, HandlerBackend, LocalBackend};
pub use instance::FieldInput;
pub use limits::{Budget, LimitError, RequestLimit, RequestLimits};
pub use quota_settings::{QuotaMode, QuotaSettings};
pub use references::References;
pub use resource_counts::{
    Counters, HandlerCounts, InstanceCounts, LastFailure, LastLimit, OTHER, QuotaCounts, ResourceCounts,
    RuleCounts,
};
pub use shadow::{Shadow, ShadowCall, ShadowCounts, ShadowDifference, ShadowKind, ShadowOptions};
pub use snapshot::{CacheSize, Snapshot, SnapshotSize};

use prost_reflect::{DynamicMessage, MessageDescriptor};

/// Formats an encoded message as JSON for traces.
pub fn trace_json(message: &MessageDescriptor, encoded: &[u8]) -> serde_json::Value {
    let options =
        prost_reflect::SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(false);
    DynamicMessage::decode(message.clone(), encoded)
        .ok()
        .and_then(|message| message.serialize_with_options(serde_json::value::Serializer, &options).ok())
        .unwrap_or_else(|| serde_json::Value::String("invalid message".to_owned()))
}
