use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use http::uri::{Authority, PathAndQuery, Scheme};
use tokio::{runtime::Handle, time::Instant};
use tonic::Status;

use super::{
    Options,
    balancer::Balancer,
    exchange::{self, Failure, Origin},
    link::Dialer,
    security::Security,
    settings::Settings,
};
use mixer_adapter_config::proto::istio::policy::v1beta1::Connection;
use mixer_adapter_core::adapter::ConfigErrors;

/// An adapter that runs elsewhere, as one handler calls it: over gRPC, on connections of its own that are made with the
/// first call and made again when they end (docs/behaviour/connections.md#connecting).
///
/// Nothing is retried that the adapter may have seen.
#[derive(Debug)]
pub struct RemoteAdapter {
    balancer: Balancer,
    security: Option<Arc<Security>>,
    origin: Origin,
    timeout: Option<Duration>,
    max_response_size: usize,
}

/// How often a call that the adapter has certainly not begun with is sent again: connections may end, in order, just when
/// a call is put on them.
const RESENT: u32 = 2;

impl RemoteAdapter {
    /// The adapter at a handler's connection. Connections are kept on that runtime. The files that the connection names
    /// are read here. The errors name its fields, `connection.address`.
    pub fn new(connection: &Connection, options: &Options, runtime: &Handle) -> Result<Self, ConfigErrors> {
        Self::build(connection, options, runtime, false)
    }

    /// The same with one connection at a time, also where the address asks for one to each of a name's addresses: a
    /// session is known to the replica that made it.
    pub(super) fn sticky(
        connection: &Connection,
        options: &Options,
        runtime: &Handle,
    ) -> Result<Self, ConfigErrors> {
        Self::build(connection, options, runtime, true)
    }

    fn build(
        connection: &Connection,
        options: &Options,
        runtime: &Handle,
        sticky: bool,
    ) -> Result<Self, ConfigErrors> {
        let Settings { address, timeout, security } = Settings::read(connection)?;
        let security = match security {
            Some(settings) => Some(Arc::new(Security::load(settings, &address, options, runtime)?)),
            None => None,
        };
        let scheme = if security.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let named = security.as_ref().and_then(|security| security.server_name());
        let authority = named.map_or_else(|| address.authority(), str::to_owned);
        let authority: Authority = authority
            .parse()
            .map_err(|error| ConfigErrors::single("connection.address", format!("{authority:?}: {error}")))?;
        let dialer = Dialer { address, options: options.clone(), security: security.clone() };
        Ok(Self {
            balancer: Balancer::new(dialer, runtime.clone(), sticky),
            security,
            origin: Origin { scheme, authority },
            timeout,
            max_response_size: options.max_response_size,
        })
    }

    /// Calls a method, `/listentry.HandleListEntryService/HandleListEntry`, with an encoded request; returns the encoded
    /// answer. The handler's timeout shortens the deadline.
    ///
    /// Errors are the adapter's own, or: UNAVAILABLE at once while it cannot be reached, and when a connection broke off;
    /// DEADLINE_EXCEEDED; RESOURCE_EXHAUSTED for an answer that is too long; INTERNAL or UNKNOWN for one that is not gRPC.
    pub async fn call(
        &self,
        path: &PathAndQuery,
        request: Bytes,
        deadline: Option<Instant>,
    ) -> Result<Bytes, Status> {
        self.call_until(path, &[&request], self.until(deadline)).await
    }

    /// The deadline, or the end of the handler's timeout from now if that is earlier.
    pub(super) fn until(&self, deadline: Option<Instant>) -> Option<Instant> {
        let own = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        deadline.into_iter().chain(own).min()
    }

    /// Calls a method without regard to the handler's timeout. The request may come in pieces: protobuf may be put
    /// together from fields in any order.
    pub(super) async fn call_until(
        &self,
        path: &PathAndQuery,
        request: &[&[u8]],
        deadline: Option<Instant>,
    ) -> Result<Bytes, Status> {
        within(deadline, self.attempt(path, exchange::frame(request)?, deadline)).await
    }

    /// Host and port, for messages.
    pub(super) fn address(&self) -> String {
        self.balancer.address()
    }

    /// Waits for the first connection. UNAVAILABLE with the reason where it cannot be made.
    pub async fn ready(&self) -> Result<(), Status> {
        self.balancer.sender().await.map(drop)
    }

    /// Waits until there is a connection.
    pub(super) async fn connected(&self) {
        self.balancer.connected().await;
    }

    async fn attempt(
        &self,
        path: &PathAndQuery,
        frame: Bytes,
        deadline: Option<Instant>,
    ) -> Result<Bytes, Status> {
        let mut resent = 0;
        loop {
            let token = match &self.security {
                Some(security) => security.token().await?,
                None => None,
            };
            let mut sender = self.balancer.sender().await?;
            let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if timeout.is_some_and(|timeout| timeout.is_zero()) {
                return Err(too_late());
            }
            let request = exchange::request(&self.origin, path, frame.clone(), timeout, token)?;
            match sender.send(request).await {
                Ok(response) => return exchange::answer(response, self.max_response_size).await,
                Err(Failure::Unprocessed(_)) if resent < RESENT => resent += 1,
                Err(Failure::Unprocessed(status) | Failure::Lost(status)) => return Err(status),
            }
        }
    }
}

/// DEADLINE_EXCEEDED when the deadline passes first; the call's stream is reset.
pub(super) async fn within<T>(
    deadline: Option<Instant>,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match deadline {
        None => call.await,
        Some(deadline) => tokio::time::timeout_at(deadline, call).await.unwrap_or_else(|_| Err(too_late())),
    }
}

fn too_late() -> Status {
    Status::deadline_exceeded("no answer in time")
}
