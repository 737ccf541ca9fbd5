//! Templates: the schemas of the instances that adapters receive, each with its answer and gRPC method.
//!
//! The standard templates are in `mixer-adapter-templates`: for each a marker type, such as `ListEntry`, and a module of
//! messages, such as `listentry`. `mixer_adapter_build::template` generates the same for a template of an author's own.

mod declare;
mod response;
mod set_field;
mod variety;

use std::fmt::Debug;

use prost::Message;

#[doc(hidden)]
pub use response::Response;
#[doc(hidden)]
pub use set_field::{PathStep, SetField, empty_value};
pub use variety::Variety;

use crate::{
    adapter::CallInfo,
    proto::{Any, QuotaRequest},
};

/// A schema with its variety and its gRPC method. Only generated code implements this trait.
///
/// The types of input and answer follow from the variety (docs/behaviour/code-generator.md#services-and-messages):
///
/// | variety | [`Input`](Self::Input) of a handler | its [`Answer`](Self::Answer) |
/// |---|---|---|
/// | check | [`Call`](crate::Call) of the instance | [`Check`](crate::Check) |
/// | report | [`Call`](crate::Call) of all instances | `()` |
/// | quota | [`Call`](crate::Call) of the instance, with its [`QuotaRequest`](crate::QuotaRequest) | [`Grant`](crate::Grant) |
/// | attribute generator | [`Call`](crate::Call) of the instance | the template's `OutputMsg` |
/// | check with output | [`Call`](crate::Call) of the instance | [`Check`](crate::Check) and the template's `OutputMsg` |
pub trait Template: Sized + Send + Sync + 'static {
    /// The name in configuration, `listentry`.
    const NAME: &'static str;
    /// The kind of the template.
    const VARIETY: Variety;
    /// The protobuf package of its messages, `listentry`.
    const PACKAGE: &'static str;
    /// The path of its gRPC method, `/listentry.HandleListEntryService/HandleListEntry`.
    const METHOD: &'static str;
    /// An encoded `FileDescriptorSet` for a real Mixer: the file of the handler service and
    /// `policy/v1beta1/{type,value_type}.proto`, without comments.
    const DESCRIPTOR: &'static [u8];
    /// The comments of its messages and fields: a line for each, with its full name, a tab and the comment.
    const COMMENTS: &'static str = "";
    /// Implemented by generated code.
    #[doc(hidden)]
    const GENERATED: ();

    /// The request message.
    type Request: Message + Default;
    /// The response message.
    type Response: Message + Default;
    /// The payload of one request: the template's `InstanceMsg`.
    type Instance: Message + Default + Clone + Debug + SetField;
    /// The types of its `Value` fields, as sessions announce them: the template's `Type`.
    type Type: Message + Default + Clone;
    /// The input of a handler.
    type Input: Send + 'static;
    /// The answer of a handler.
    type Answer: Send + 'static;
    /// The part of the request that the answer is validated against.
    #[doc(hidden)]
    type Context: Send + 'static;

    /// Takes the configuration or session id out of the request.
    #[doc(hidden)]
    fn take_adapter_config(request: &mut Self::Request) -> Option<Any>;

    /// Returns the full names of the request's instances, `checkpath.instance.istio-system`.
    #[doc(hidden)]
    fn instance_names(request: &Self::Request) -> impl Iterator<Item = &str>;

    /// Makes the request for instances; a template that is not a report takes the first one.
    #[doc(hidden)]
    fn request(
        instances: impl Iterator<Item = Self::Instance>,
        dedup_id: String,
        quota_request: Option<QuotaRequest>,
    ) -> Self::Request;

    /// Splits a request into the handler's input and the context of its answer.
    #[doc(hidden)]
    fn split(
        request: Self::Request,
        info: CallInfo,
    ) -> Result<(Self::Input, Self::Context), MalformedRequestError>;

    /// Makes the response of an answer.
    #[doc(hidden)]
    fn respond(context: Self::Context, answer: Self::Answer) -> Result<Response, InvalidAnswerError>;
}

/// A request that decodes but lacks a required part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MalformedRequestError {
    /// The request has no instance.
    #[error("the request has no `instance`")]
    NoInstance,
    /// A quota call without `quota_request`.
    #[error("the request has no `quota_request`")]
    NoQuotaRequest,
    /// A quota call for several quotas without the instance's.
    #[error("`quota_request` has the quotas {requested:?}, but not that of the instance `{instance}`")]
    OtherQuotas {
        /// The instance's full name.
        instance: String,
        /// The names in `quota_request.quotas`.
        requested: Vec<String>,
    },
}

/// An answer that violates its template's contract: a defect of the adapter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidAnswerError {
    /// A negative amount was granted.
    #[error("granted {granted}, a negative amount")]
    NegativeGrant {
        /// The amount granted.
        granted: i64,
    },
    /// A part of the amount was granted although the request is not best effort.
    #[error("granted {granted} of {requested} although the request is not best effort: grant all or nothing")]
    PartialGrant {
        /// The amount requested.
        requested: i64,
        /// The amount granted.
        granted: i64,
    },
}
