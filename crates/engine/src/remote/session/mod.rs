//! Sessions with adapters that have `session_based: true`: the client's side of `InfrastructureBackend`.
//!
//! No released Mixer does this (docs/behaviour/sessions.md#what-released-mixers-do); what is done here follows the interface's
//! text.

mod setup;
mod state;

use std::sync::Arc;

use bytes::Bytes;
use http::uri::PathAndQuery;
use prost::encoding::{WireType, encode_key, encode_varint};
use tokio::{sync::watch, time::Instant};
use tonic::{Code, Status};

use self::{
    setup::{Failure, Setup},
    state::{Opened, Renewals, State},
};
pub use self::{
    setup::{Refused, Step},
    state::SessionState,
};
use super::{Options, RemoteAdapter, adapter::within};
use mixer_adapter_config::proto::istio::policy::v1beta1::Connection;
use mixer_adapter_core::adapter::ConfigErrors;
use mixer_adapter_host::{NewSession, handler::Closing};

/// A session: an adapter that runs elsewhere, with a configuration that it was given ahead of the calls.
///
/// It begins with Validate, and CreateSession once that succeeded; every call carries its id in `adapter_config`. When
/// the adapter has lost it, it is made again and the call is sent once more. Dropping it ends it with CloseSession, so a
/// changed handler is served without a gap by opening the new session first and then dropping the old one.
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
}

/// Why a session cannot be opened.
#[derive(Clone, Debug, thiserror::Error)]
pub enum OpenError {
    /// The handler's connection is not usable.
    #[error(transparent)]
    Connection(#[from] ConfigErrors),
    /// The adapter refused the configuration.
    #[error(transparent)]
    Refused(#[from] Refused),
}

impl Session {
    /// Opens a session. An adapter that refuses the configuration is an error. One that cannot be reached is not: the
    /// session is pending, is tried again in the background, and its calls are UNAVAILABLE until then.
    ///
    /// Connections are kept on the runtime of `closing`, which also waits for CloseSession at shutdown.
    pub async fn open(
        connection: &Connection,
        new: NewSession,
        options: &Options,
        closing: &Closing,
    ) -> Result<Self, OpenError> {
        let remote = RemoteAdapter::sticky(connection, options, closing.runtime())?;
        let setup = Setup::new(remote, new, options);
        let state = match setup.establish().await {
            Ok(id) => State::open(id),
            Err(Failure::Refused(refused)) => return Err(refused.into()),
            Err(failure) => State::Pending(failure.status()),
        };
        let pending = matches!(state, State::Pending(_));
        let shared = Arc::new(Shared {
            setup,
            state: watch::Sender::new(state),
            renewals: Renewals::new(options.setup_backoff),
            closing: closing.clone(),
        });
        if pending {
            closing.runtime().spawn(shared.clone().retry());
        }
        Ok(Self { shared })
    }

    /// Calls a method with an encoded request that has no `adapter_config`: that becomes the session's id, in the field
    /// of that number (2 in what Mixer's generator makes). Otherwise as [`RemoteAdapter::call`].
    pub async fn call(
        &self,
        path: &PathAndQuery,
        adapter_config: u32,
        request: Bytes,
        deadline: Option<Instant>,
    ) -> Result<Bytes, Status> {
        let call = Call { path, adapter_config, request };
        let deadline = self.shared.setup.remote.until(deadline);
        within(deadline, self.shared.call(&call, deadline)).await
    }

    /// Whether it is open.
    pub fn state(&self) -> SessionState {
        self.shared.state.borrow().describe()
    }

    /// Waits until it is open.
    pub async fn opened(&self) {
        let mut changes = self.shared.state.subscribe();
        // What sends the changes is here: it cannot have gone.
        let _ = changes.wait_for(|state| matches!(state, State::Open { .. })).await;
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // One that is being made again is closed when that is done.
        if let State::Open { session, renewing: false } = self.shared.state.send_replace(State::Closed) {
            self.shared.close(session.id.clone());
        }
    }
}

/// One call of a handler.
struct Call<'a> {
    path: &'a PathAndQuery,
    adapter_config: u32,
    request: Bytes,
}

/// What outlives the session for as long as it takes to close it.
#[derive(Debug)]
struct Shared {
    setup: Setup,
    state: watch::Sender<State>,
    renewals: Renewals,
    closing: Closing,
}

impl Shared {
    async fn call(self: &Arc<Self>, call: &Call<'_>, deadline: Option<Instant>) -> Result<Bytes, Status> {
        let session = self.state.borrow().opened()?;
        let answer = self.send(call, &session, deadline).await;
        let lost = match answer {
            Err(status) if status.code() == Code::NotFound => status,
            answer => return answer,
        };
        let Some(renewed) = self.renewed(&session).await? else { return Err(lost) };
        let answer = self.send(call, &renewed, deadline).await;
        if answer.as_ref().is_err_and(|status| status.code() == Code::NotFound) {
            // The session is there now, so it is not what was not found, and was there before: the adapter has two
            // claims on it, or one on each.
            self.renewals.was_in_vain();
            self.close(session.id.clone());
        } else {
            self.renewals.was_of_use();
        }
        answer
    }

    async fn send(
        &self,
        call: &Call<'_>,
        session: &Opened,
        deadline: Option<Instant>,
    ) -> Result<Bytes, Status> {
        let mut head = Vec::with_capacity(16);
        encode_key(call.adapter_config, WireType::LengthDelimited, &mut head);
        encode_varint(session.adapter_config.len() as u64, &mut head);
        let request = [&call.request[..], &head[..], &session.adapter_config[..]];
        self.setup.remote.call_until(call.path, &request, deadline).await
    }

    /// The session that took the place of one that the adapter does not know. It is made once, however many calls found
    /// out, and also when none of them waits for it. `None` if making it again was of no use just before.
    async fn renewed(self: &Arc<Self>, lost: &Arc<Opened>) -> Result<Option<Arc<Opened>>, Status> {
        let begin = self.state.send_if_modified(|state| match state {
            State::Open { session, renewing } if Arc::ptr_eq(session, lost) && !*renewing => {
                *renewing = self.renewals.may_begin();
                *renewing
            }
            _ => false,
        });
        if begin {
            self.closing.runtime().spawn(self.clone().establish_or_retry());
        }
        let is_lost = |session: &Arc<Opened>| Arc::ptr_eq(session, lost);
        let mut changes = self.state.subscribe();
        let being_made = |state: &State| match state {
            State::Open { session, renewing } => *renewing && is_lost(session),
            _ => false,
        };
        let Ok(state) = changes.wait_for(|state| !being_made(state)).await else { return Ok(None) };
        let session = state.opened()?;
        Ok((!is_lost(&session)).then_some(session))
    }

    async fn establish_or_retry(self: Arc<Self>) {
        if !self.establish().await {
            self.retry().await;
        }
    }

    /// Tries to make the session, again and again, until it is there or nobody wants it any more.
    async fn retry(self: Arc<Self>) {
        let mut delays = self.setup.backoff.delays();
        let mut changes = self.state.subscribe();
        loop {
            let reachable = async {
                tokio::time::sleep(delays.next_delay()).await;
                self.setup.remote.connected().await;
            };
            tokio::select! {
                () = reachable => {}
                _ = changes.wait_for(|state| matches!(state, State::Closed)) => return,
            }
            if self.establish().await {
                return;
            }
        }
    }

    /// Makes the session if it can. Whether there is nothing more to do.
    async fn establish(self: &Arc<Self>) -> bool {
        let made = self.setup.establish().await;
        let mut unwanted = false;
        let mut done = false;
        self.state.send_modify(|state| match (&*state, &made) {
            (State::Closed, _) => unwanted = true,
            (_, Ok(id)) => (*state, done) = (State::open(id.clone()), true),
            (_, Err(failure)) => *state = State::Pending(failure.status()),
        });
        match made {
            Ok(id) if unwanted => self.close(id),
            Ok(id) => {
                tracing::info!(adapter = self.setup.address, id, "the session with the adapter is open")
            }
            Err(failure) => {
                let why = failure.status();
                tracing::warn!(
                    adapter = self.setup.address,
                    why = why.message(),
                    "no session with the adapter yet"
                );
            }
        }
        done || unwanted
    }

    /// Ends a session in the background: whoever drops one does not wait for it.
    fn close(self: &Arc<Self>, id: String) {
        let shared = self.clone();
        self.closing.spawn(async move {
            if let Err(why) = shared.setup.close(&id).await {
                tracing::debug!(adapter = shared.setup.address, id, why, "the session was not closed");
            }
        });
    }
}
