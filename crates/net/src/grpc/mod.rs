//! The unary path of a gRPC server: one message in, one message out, without tonic's codecs and router, which cost more than
//! decoding a check does (docs/behaviour/libraries.md#runtimes).
//!
//! [`StreamService`] and [`StreamClient`] limit the memory of messages that tonic decodes.

mod admission;
mod body;
mod caller;
mod frame;
mod framing;
mod headers;
mod message_limit;
mod service;
mod stream;
mod stream_client;
mod stream_messages;
mod stream_service;
mod timeout_header;
mod trace_parent;
mod weight;

pub use admission::{CallMemory, FREE_BYTES};
pub use body::UnaryBody;
pub use caller::Caller;
pub use framing::{FrameError, UnaryMessage, frame};
pub use message_limit::limit_message;
pub use service::{CallLimits, Methods, Reply, UnaryService, within};
pub use stream::StreamBody;
pub use stream_client::StreamClient;
pub use stream_messages::StreamMessages;
pub use stream_service::{StreamLimits, StreamMemory, StreamService};
pub use timeout_header::timeout_header;
pub use trace_parent::TraceParent;
pub use weight::expansion;
