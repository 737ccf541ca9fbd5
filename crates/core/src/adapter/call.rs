use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;

use super::QuotaRequest;

/// A call of a handler: the instance, or all instances of a report, with the deadline and the client. Derefs to the instance.
///
/// A quota call is `Call<quota::InstanceMsg, QuotaRequest>`: the instance with the amount that is requested.
///
/// A call is a value, and can be moved into a task that the handler spawns.
///
/// ```
/// use mixer_adapter_core::{AdapterError, Call, Check, Code};
/// use mixer_adapter_templates::checknothing;
///
/// async fn handle(call: Call<checknothing::InstanceMsg>) -> Result<Check, AdapterError> {
///     Ok(match call.peer() {
///         Some("spiffe://cluster.local/ns/istio-system/sa/ingress") => Check::allow().no_cache(),
///         _ => Check::deny(Code::PermissionDenied, "not the ingress").no_cache(),
///     })
/// }
///
/// // In a test, a call is made of its instance.
/// let call = Call::new(checknothing::InstanceMsg::default());
/// assert_eq!((call.name.as_str(), call.peer(), call.deadline()), ("", None, None));
/// let call = call.with_peer("ingress").with_request_id("r-1").with_metadata("x-tenant", "acme");
/// assert_eq!((call.peer(), call.request_id(), call.metadata("x-tenant")), (Some("ingress"), Some("r-1"), Some("acme")));
/// ```
///
/// `testing::FakeHandler` of the crate `mixer-adapter` sends such a call.
#[derive(Clone, Debug, Default)]
pub struct Call<M, Q = ()> {
    message: M,
    quota: Q,
    info: CallInfo,
}

/// The properties of a call besides its instances.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct CallInfo {
    pub deadline: Option<Instant>,
    pub dedup_id: String,
    pub peer: Option<Arc<str>>,
    pub request_id: Option<Arc<str>>,
    pub metadata: Option<Arc<HeaderMap>>,
    pub handler: Option<Arc<str>>,
}

impl<M> Call<M> {
    /// Makes a call of an instance, for a test.
    pub fn new(message: M) -> Self {
        Self::with_info(message, (), CallInfo::default())
    }
}

impl<M> Call<M, QuotaRequest> {
    /// Makes a quota call of an instance and an amount, for a test.
    pub fn for_quota(message: M, request: impl Into<QuotaRequest>) -> Self {
        let request = request.into();
        let info = CallInfo { dedup_id: request.dedup_id.clone(), ..CallInfo::default() };
        Self::with_info(message, request, info)
    }

    /// Returns the amount that is requested, and how.
    pub fn quota(&self) -> &QuotaRequest {
        &self.quota
    }
}

impl<M, Q> Call<M, Q> {
    #[doc(hidden)]
    pub fn with_info(message: M, quota: Q, info: CallInfo) -> Self {
        Self { message, quota, info }
    }

    /// Sets the authenticated name of the client, for a test.
    #[must_use]
    pub fn with_peer(mut self, peer: impl Into<Arc<str>>) -> Self {
        self.info.peer = Some(peer.into());
        self
    }

    /// Sets the deadline, for a test.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        self.info.deadline = Some(deadline);
        self
    }

    /// Sets the header `x-request-id`, for a test.
    #[must_use]
    pub fn with_request_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.info.request_id = Some(id.into());
        self
    }

    /// Sets a text header of the gRPC call, for a test.
    ///
    /// # Panics
    /// If the name is not a header name in lower case, or the value is not visible ASCII.
    #[must_use]
    pub fn with_metadata(mut self, name: &'static str, value: &'static str) -> Self {
        let headers = Arc::make_mut(self.info.metadata.get_or_insert_default());
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        self
    }

    /// Sets the full name of the handler, for a test that calls `handle`. A `FakeHandler` does not send it, as a remote Mixer does not.
    #[must_use]
    pub fn with_handler(mut self, name: impl Into<Arc<str>>) -> Self {
        self.info.handler = Some(name.into());
        self
    }

    #[doc(hidden)]
    pub fn into_parts(self) -> (M, CallInfo) {
        (self.message, self.info)
    }

    /// Returns the instance, or all instances of a report.
    pub fn into_inner(self) -> M {
        self.message
    }

    /// Returns when the caller stops waiting. The server drops the future of `handle` then; a spawned task goes on.
    pub fn deadline(&self) -> Option<Instant> {
        self.info.deadline
    }

    /// Returns the time until the [deadline](Self::deadline), or `limit` if that is shorter.
    pub fn time_left(&self, limit: Duration) -> Duration {
        let left = self.info.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        left.map_or(limit, |left| left.min(limit))
    }

    /// Returns the id that a repeated call has, too; empty if the caller sends none. Unrelated calls of several Mixers can share an id
    /// (docs/behaviour/adapter-calls.md#deduplication-ids).
    pub fn dedup_id(&self) -> &str {
        &self.info.dedup_id
    }

    /// Returns the authenticated name of the client: a SAN of its certificate, the name of its token, or the subject of its JSON Web
    /// Token. `None` for a client that is not authenticated.
    ///
    /// If the handler is called for a check or a report in the same process, the client is the proxy that sent it. Answers to checks are
    /// cached by the attributes of a request and not by its client: an answer that depends on the client must not be cached
    /// ([`Check::no_cache`](super::Check::no_cache)).
    pub fn peer(&self) -> Option<&str> {
        self.info.peer.as_deref()
    }

    /// Returns the header `x-request-id`, which the caller chooses.
    pub fn request_id(&self) -> Option<&str> {
        self.info.request_id.as_deref()
    }

    /// Returns a text header of the gRPC call, by its name in lower case. Anybody who can call the server chooses it.
    pub fn metadata(&self, name: &str) -> Option<&str> {
        self.info.metadata.as_ref()?.get(name)?.to_str().ok()
    }

    /// Returns the full name of the handler, `deny.handler.istio-system`, if a rule of this process called it. Remote Mixers do not send
    /// the names of handlers.
    pub fn handler(&self) -> Option<&str> {
        self.info.handler.as_deref()
    }
}

impl<M> From<M> for Call<M> {
    fn from(message: M) -> Self {
        Self::new(message)
    }
}

impl<M, const N: usize> From<[M; N]> for Call<Vec<M>> {
    fn from(instances: [M; N]) -> Self {
        Self::new(instances.into())
    }
}

impl<M> IntoIterator for Call<Vec<M>> {
    type Item = M;
    type IntoIter = std::vec::IntoIter<M>;

    /// Returns the instances of a report.
    fn into_iter(self) -> Self::IntoIter {
        self.message.into_iter()
    }
}

impl<M, Q> Deref for Call<M, Q> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.message
    }
}

impl<M, Q> DerefMut for Call<M, Q> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.message
    }
}
