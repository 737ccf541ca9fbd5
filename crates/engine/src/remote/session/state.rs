use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use prost::Message as _;
use tokio::time::Instant;
use tonic::Status;

use mixer_adapter_core::proto::Any;
use mixer_adapter_net::{Backoff, Delays};

/// Whether a session is open, for those who ask.
#[derive(Clone, Debug)]
pub enum SessionState {
    /// It is.
    Open {
        /// The id the adapter gave it.
        id: String,
    },
    /// It is tried again in the background.
    Pending {
        /// What its calls are answered meanwhile: UNAVAILABLE.
        why: Status,
    },
}

/// What a session's calls find.
#[derive(Debug)]
pub(super) enum State {
    Open {
        session: Arc<Opened>,
        /// The adapter did not know it, and it is being made again.
        renewing: bool,
    },
    /// Why calls are UNAVAILABLE.
    Pending(Status),
    Closed,
}

/// A session that an adapter made.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) id: String,
    /// The `Any` that carries the id in calls, encoded.
    pub(super) adapter_config: Bytes,
}

/// The type_url of a session id in `adapter_config`, from the comments of generated protos; its value is the id as it is
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
            Self::Pending(why) => Err(why.clone()),
            Self::Closed => Err(Status::unavailable("the session is closed")),
        }
    }

    pub(super) fn describe(&self) -> SessionState {
        match self.opened() {
            Ok(session) => SessionState::Open { id: session.id.clone() },
            Err(why) => SessionState::Pending { why },
        }
    }
}

/// When a session may be made again. NOT_FOUND may mean something else than the session: an adapter that says so often
/// must not be asked for a new session each time.
#[derive(Debug)]
pub(super) struct Renewals(Mutex<(Delays, Instant)>);

impl Renewals {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self(Mutex::new((backoff.delays(), Instant::now())))
    }

    pub(super) fn may_begin(&self) -> bool {
        self.lock().1 <= Instant::now()
    }

    /// With the new session it is not found either.
    pub(super) fn was_in_vain(&self) {
        let (delays, not_before) = &mut *self.lock();
        *not_before = Instant::now() + delays.next_delay();
    }

    pub(super) fn was_of_use(&self) {
        self.lock().0.reset();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, (Delays, Instant)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
