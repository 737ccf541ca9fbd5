//! Templates: the schemas of what adapters are handed, each with its instance, answer and gRPC method.
//!
//! The standard ten and `kubernetes` are here, generated from `templates/*/template.proto`; a template of an author's own
//! comes from the same generator, `mixer_adapter_build::template`, in the author's build.rs.

mod declare;
mod dynamic;
mod standard;
mod variety;

use prost::Message;

pub use dynamic::{DescriptorError, DescriptorSet, DynamicTemplate, HandleRequest};
pub use standard::*;
pub use variety::Variety;

use crate::proto::Any;

/// A template: one schema, one variety, one gRPC method. Implemented by generated code only.
///
/// The shapes follow from the variety (docs/behaviour/code-generator.md#services-and-messages):
///
/// | variety | what a handler gets ([`Input`](Self::Input)) | what it answers ([`Answer`](Self::Answer)) |
/// |---|---|---|
/// | check | the instance | [`Check`](crate::Check) |
/// | report | all instances of the call | `()` |
/// | quota | the instance and its [`QuotaArgs`](crate::QuotaArgs) | [`Grant`](crate::Grant) |
/// | attribute generator | the instance | the template's `OutputMsg` |
/// | check with output | the instance | [`Check`](crate::Check) and the template's `OutputMsg` |
pub trait Template: Sized + Send + Sync + 'static {
    /// The name in configuration, `listentry`.
    const NAME: &'static str;
    /// When Mixer calls it and what it answers.
    const VARIETY: Variety;
    /// The protobuf package of its messages, `listentry`.
    const PACKAGE: &'static str;
    /// The path of its gRPC method, `/listentry.HandleListEntryService/HandleListEntry`.
    const METHOD: &'static str;
    /// An encoded `FileDescriptorSet` that is enough for a real Mixer: the handler service's file and
    /// `policy/v1beta1/{type,value_type}.proto`, without comments.
    const DESCRIPTOR: &'static [u8];

    /// The message on the wire.
    type Request: Message + Default;
    /// The answer on the wire.
    type Response: Message + Default;
    /// One request's payload: the template's `InstanceMsg`.
    type Instance: Message + Default + Clone;
    /// The types of its `Value` fields, as sessions announce them: the template's `Type`.
    type Type: Message + Default + Clone;
    /// What a handler is given.
    type Input: Send + 'static;
    /// What a handler answers.
    type Answer: Send + 'static;
    /// What of the request the answer must be held against.
    type Asked: Send + 'static;

    /// Takes the configuration or session that came with the call out of the request.
    fn take_adapter_config(request: &mut Self::Request) -> Option<Any>;

    /// The full names of the request's instances, `checkpath.instance.istio-system`.
    fn instance_names(request: &Self::Request) -> impl Iterator<Item = &str>;

    /// Splits a request into what the handler gets and what its answer is held against; an error is INVALID_ARGUMENT.
    fn split(request: Self::Request) -> Result<(Self::Input, Self::Asked), Malformed>;

    /// Makes the message on the wire; an answer that breaks the template's contract is an error.
    fn respond(asked: Self::Asked, answer: Self::Answer) -> Result<Self::Response, Breach>;
}

/// A request that decodes but lacks what its template demands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The request has no instance.
    #[error("the request has no `instance`")]
    NoInstance,
    /// A quota call without `quota_request`.
    #[error("the request has no `quota_request`")]
    NoQuotaRequest,
    /// None of the quotas asked for is the instance's.
    #[error("`quota_request` asks for {asked:?}, none of them the instance `{instance}`")]
    OtherQuotas {
        /// The instance's full name.
        instance: String,
        /// The names in `quota_request.quotas`.
        asked: Vec<String>,
    },
}

/// An answer of a handler that breaks its template's contract: a defect of the adapter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Breach {
    /// A negative amount was granted.
    #[error("granted {granted}, a negative amount")]
    NegativeGrant {
        /// The amount granted.
        granted: i64,
    },
    /// Part of the amount was granted although the request was not best effort.
    #[error("granted {granted} of {asked} although the request is not best effort: grant all or nothing")]
    PartialGrant {
        /// The amount asked for.
        asked: i64,
        /// The amount granted.
        granted: i64,
    },
}
