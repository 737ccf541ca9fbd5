//! The state of a session, for tests.

use tonic::Status;

use super::{Session, state::State};

#[derive(Clone, Debug)]
pub(crate) enum SessionState {
    /// The session is open.
    Open {
        /// The id assigned by the adapter.
        id: String,
    },
    /// The session is not open; opening is retried in the background.
    Pending {
        /// The status of its calls: UNAVAILABLE with the reason.
        status: Status,
    },
}

impl Session {
    pub(crate) fn state(&self) -> SessionState {
        match self.shared.state.borrow().opened() {
            Ok(session) => SessionState::Open { id: session.id.clone() },
            Err(status) => SessionState::Pending { status },
        }
    }

    pub(crate) async fn opened(&self) {
        let mut changes = self.shared.state.subscribe();
        // Cannot fail: `self` owns the sender.
        let _ = changes.wait_for(|state| matches!(state, State::Open { .. })).await;
    }
}
