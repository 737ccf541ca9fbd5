//! The unary path of a gRPC server: one message in, one message out, without tonic's codecs and router, which cost more than
//! decoding a check does (docs/behaviour/libraries.md#runtimes).

mod admission;
mod body;
mod frame;
mod headers;
mod service;
mod stream;
mod stream_request;
mod timeout;

pub use admission::{CallMemory, FREE_BYTES};
pub use body::UnaryBody;
pub use service::{Call, CallLimits, Methods, Reply, UnaryService, within};
pub use stream::StreamBody;
pub use stream_request::StreamRequest;
