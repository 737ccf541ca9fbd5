use std::time::Duration;

use bytes::Bytes;

use mixer_adapter_core::adapter::Code;

/// What goes wrong between the engine and an adapter: see [`FakeMixer::inject`](super::FakeMixer::inject).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call reaches the adapter that much later; meanwhile its deadline goes on.
    Delay(Duration),
    /// The adapter is not called; this error is the answer.
    Error(Code, String),
    /// The connection breaks off when the call has been sent. The adapter is not called.
    Dropped,
    /// The adapter is not called; the answer is no protobuf message.
    Malformed,
    /// The adapter is not called; these bytes are the answer's message.
    Answer(Bytes),
    /// The adapter has lost all its sessions when the call arrives, as one that was started again.
    LostSessions,
}

/// The key of a field without its value.
pub(super) const NO_MESSAGE: Bytes = Bytes::from_static(&[0x0a]);
