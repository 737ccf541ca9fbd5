//! Parts that the other crates of the framework and generated code use. They are not for authors, and change without notice.

mod debug_fields;
pub mod digest;
pub mod dynamic;
pub mod frame;
mod framing_headers;
pub mod json;
pub mod line_queue;
pub mod log_limit;
pub mod log_text;
pub mod lossy_text;
pub mod name;
pub mod optional_fields;
mod quota_context;
mod setters;
pub mod status;
pub mod suggest;
mod this_machine;
pub mod translation;
pub mod version;

pub use debug_fields::debug_fields;
pub use framing_headers::is_framing_header;
pub use quota_context::QuotaContext;
pub use setters::{setters, settings};
pub use this_machine::is_this_machine;

#[cfg(feature = "metrics")]
pub use crate::metrics::MetricStore;
pub use crate::{
    adapter::{
        CallInfo, Environment, HttpTransport, Repeatable, SendFuture, Shared, Tasks, TemplateVisitor,
        TransportError, UnsendableError, Warnings,
    },
    retention::RetainedStates,
};
