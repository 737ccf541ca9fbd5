use std::time::Duration;

use bytes::Bytes;

use mixer_adapter_core::adapter::Code;

/// A fault between the engine and an adapter: see [`FakeMixer::inject`](super::FakeMixer::inject).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InjectedFault {
    /// Delays the call, but not its deadline.
    Delay(Duration),
    /// Answers with this error instead of the adapter.
    Error(Code, String),
    /// Closes the connection after the call was sent, without a call of the adapter.
    Dropped,
    /// Answers with bytes that are not a protobuf message, instead of the adapter.
    Malformed,
    /// Answers with this message instead of the adapter.
    Answer(Bytes),
    /// Removes all sessions of the adapter before the call, as a restart does.
    LostSessions,
}

/// The tag of a field without its value.
pub(super) const MALFORMED: Bytes = Bytes::from_static(&[0x0a]);
