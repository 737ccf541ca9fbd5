use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue,
    uri::{Authority, PathAndQuery, Scheme},
};
use tokio::{runtime::Handle, time::Instant};
use tonic::Status;
use tracing::Instrument as _;

use super::{
    ExportedSpan, Options,
    balancer::Balancer,
    exchange::{self, ExchangeError, Origin},
    link::Dialer,
    security::Security,
    settings::Settings,
};
use mixer_adapter_config::proto::istio::policy::v1beta1::Connection;
use mixer_adapter_core::adapter::ConfigErrors;
use mixer_adapter_host::handler::Caller;
use mixer_adapter_net::grpc::{TraceParent, frame};

/// A handler's client of an out-of-process adapter. The first call opens its connections, which are reopened when they
/// end (docs/behaviour/connections.md#connecting).
///
/// A call is retried only if the adapter cannot have processed it.
#[derive(Debug)]
pub struct RemoteAdapter {
    balancer: Balancer,
    security: Option<Arc<Security>>,
    origin: Origin,
    timeout: Option<Duration>,
    exported_span: Option<ExportedSpan>,
    /// The header with a token, for calls that have none.
    token: Option<(HeaderName, HeaderValue)>,
}

/// A call without its request.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallHead<'a> {
    pub(super) path: &'a PathAndQuery,
    pub(super) deadline: Option<Instant>,
    /// The trace that the call is part of.
    pub(super) trace: Option<TraceParent>,
}

/// Maximum retries of a call that the adapter has not begun to process, because its connection was shutting down.
const MAX_RETRIES: u32 = 2;

impl RemoteAdapter {
    /// Creates a client for a handler's connection, whose files are read here. Connections run on `runtime`. Errors name
    /// fields, such as `connection.address`.
    pub fn new(connection: &Connection, options: &Options, runtime: &Handle) -> Result<Self, ConfigErrors> {
        let settings = Settings::read(connection)?;
        settings.check_access(&options.access)?;
        let Settings { address, timeout, security } = settings;
        let security = match &options.tls {
            Some(tls) => Some(Security::new(tls.client.clone(), tls.server_name.clone(), &address)?),
            None => {
                security.map(|settings| Security::load(settings, &address, options, runtime)).transpose()?
            }
        };
        let security = security.map(Arc::new);
        let scheme = if security.is_some() { Scheme::HTTPS } else { Scheme::HTTP };
        let named = security.as_ref().and_then(|security| security.configured_name.as_deref());
        let authority = named.map_or_else(|| address.authority(), str::to_owned);
        let authority: Authority = authority
            .parse()
            .map_err(|error| ConfigErrors::single("connection.address", format!("{authority:?}: {error}")))?;
        let dialer = Dialer { address, options: options.clone(), security: security.clone() };
        Ok(Self {
            balancer: Balancer::new(dialer, runtime.clone()),
            security,
            origin: Origin { scheme, authority },
            timeout,
            exported_span: options.exported_span,
            token: options.token.clone(),
        })
    }

    /// Uses a single connection, even for a `dns:///` address: a session exists only in the replica that created it.
    pub(super) fn sticky(self) -> Self {
        Self { balancer: self.balancer.sticky(), ..self }
    }

    /// Calls a method such as `/listentry.HandleListEntryService/HandleListEntry` with an encoded request and returns the
    /// encoded response. The earlier of `deadline` and the handler's timeout applies.
    ///
    /// # Errors
    /// The adapter's own status; UNAVAILABLE if there is no connection or it is lost; DEADLINE_EXCEEDED; RESOURCE_EXHAUSTED if the
    /// response is too long; INTERNAL or UNKNOWN if it is not valid gRPC.
    pub async fn call(
        &self,
        path: &PathAndQuery,
        request: Bytes,
        deadline: Option<Instant>,
    ) -> Result<Bytes, Status> {
        let deadline = self.effective_deadline(deadline);
        self.call_until(CallHead { path, deadline, trace: None }, &[&request]).await
    }

    /// Calls a method like [`Self::call`] for a caller, with whose trace the adapter continues.
    pub(crate) async fn call_for(
        &self,
        caller: &Caller,
        path: &PathAndQuery,
        request: Bytes,
    ) -> Result<Bytes, Status> {
        let deadline = self.effective_deadline(caller.deadline);
        self.call_until(CallHead { path, deadline, trace: caller.trace }, &[&request]).await
    }

    /// Returns the earlier of `deadline` and the handler's timeout.
    pub(super) fn effective_deadline(&self, deadline: Option<Instant>) -> Option<Instant> {
        let own = self.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        deadline.into_iter().chain(own).min()
    }

    /// Calls a method without the handler's timeout. `request` is the concatenation of its parts, which protobuf permits
    /// for encoded fields.
    pub(super) async fn call_until(&self, call: CallHead<'_>, request: &[&[u8]]) -> Result<Bytes, Status> {
        within(call.deadline, self.send(call, request)).await
    }

    /// Calls a method like [`Self::call_until`], but only the adapter observes the deadline.
    pub(super) async fn send(&self, call: CallHead<'_>, request: &[&[u8]]) -> Result<Bytes, Status> {
        let span = tracing::debug_span!(
            target: "mixer_adapter::remote",
            "remote call",
            otel.kind = "client",
            method = call.path.path(),
            address = self.address(),
        );
        let trace = self.exported_span.and_then(|ids| ids(&span)).or(call.trace);
        let frame =
            frame(request).map_err(|error| Status::resource_exhausted(format!("the request: {error}")))?;
        self.attempt(CallHead { trace, ..call }, frame).instrument(span).await
    }

    /// The address as `host:port` or `unix:/path`.
    pub(super) fn address(&self) -> String {
        self.balancer.dialer.address.to_string()
    }

    /// Waits for the first connection; UNAVAILABLE with the reason if it fails.
    pub async fn ready(&self) -> Result<(), Status> {
        self.balancer.sender().await.map(drop)
    }

    /// Waits for a connection.
    pub(super) async fn connected(&self) {
        self.balancer.connected().await;
    }

    async fn attempt(&self, call: CallHead<'_>, frame: Bytes) -> Result<Bytes, Status> {
        let CallHead { path, deadline, trace } = call;
        let mut retries = 0;
        loop {
            let token = match &self.security {
                Some(security) => security.token().await?,
                None => None,
            };
            let token = token.or_else(|| self.token.clone());
            let mut sender = self.balancer.sender().await?;
            let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if timeout.is_some_and(|timeout| timeout.is_zero()) {
                return Err(deadline_exceeded());
            }
            let request = exchange::request(&self.origin, path, frame.clone(), timeout, token, trace)?;
            match sender.send(request).await {
                Ok(response) => return exchange::answer(response).await,
                Err(ExchangeError::Unprocessed(_)) if retries < MAX_RETRIES => retries += 1,
                Err(ExchangeError::Unprocessed(status) | ExchangeError::Lost(status)) => return Err(status),
            }
        }
    }
}

/// Runs a call until the deadline, at which it is cancelled with DEADLINE_EXCEEDED.
pub(super) async fn within<T>(
    deadline: Option<Instant>,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match deadline {
        None => call.await,
        Some(deadline) => {
            tokio::time::timeout_at(deadline, call).await.unwrap_or_else(|_| Err(deadline_exceeded()))
        }
    }
}

fn deadline_exceeded() -> Status {
    Status::deadline_exceeded("no response before the deadline")
}
