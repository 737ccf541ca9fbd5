use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message as _;
use tokio::time::Instant;
use tonic::Status;

use mixer_adapter_core::proto::Any;
use mixer_adapter_net::{Backoff, Delays};

/// The state as calls use it.
#[derive(Debug)]
pub(super) enum State {
    Open {
        session: Arc<Opened>,
        /// The adapter has lost the session, and it is being created again.
        renewing: bool,
    },
    /// The status of calls.
    Pending(Status),
    Closed,
}

/// A session created by an adapter.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) id: String,
    /// The `Any` that carries the id in calls, encoded.
    pub(super) adapter_config: Bytes,
}

/// The type_url of a session id in `adapter_config`, as documented in generated protos; the value is the plain id
/// (docs/behaviour/sessions.md#session-ids-in-calls).
const SESSION_ID: &str = "google.protobuf.Any.type_url";

impl State {
    pub(super) fn open(id: String) -> Self {
        let any = Any { type_url: SESSION_ID.to_owned(), value: Bytes::copy_from_slice(id.as_bytes()) };
        let session = Opened { id, adapter_config: any.encode_to_vec().into() };
        Self::Open { session: Arc::new(session), renewing: false }
    }

    pub(super) fn opened(&self) -> Result<Arc<Opened>, Status> {
        match self {
            Self::Open { session, .. } => Ok(session.clone()),
            Self::Pending(status) => Err(status.clone()),
            Self::Closed => Err(Status::unavailable("the session is closed")),
        }
    }
}

/// Limits renewals of a session. NOT_FOUND may refer to something other than the session and must not cause a renewal for
/// every call.
#[derive(Debug)]
pub(super) struct Renewals(Mutex<(Delays, Instant)>);

impl Renewals {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self(Mutex::new((backoff.delays(), Instant::now())))
    }

    pub(super) fn may_begin(&self) -> bool {
        self.0.lock().1 <= Instant::now()
    }

    /// Delays the next renewal: the call was NOT_FOUND with the new session, too.
    pub(super) fn failed(&self) {
        let (delays, not_before) = &mut *self.0.lock();
        *not_before = Instant::now() + delays.next_delay();
    }

    pub(super) fn succeeded(&self) {
        self.0.lock().0.reset();
    }
}
