use std::{cell::RefCell, sync::Arc};

use crate::scoped::scoped;

thread_local! {
    /// The client whose call this thread runs.
    static PEER: RefCell<Option<Arc<str>>> = const { RefCell::new(None) };
}

/// Returns the authenticated name of the client whose call [`Handle::handle`](crate::Handle::handle) is serving: a SAN of its
/// certificate, the name of its token, or the subject of its JSON Web Token.
///
/// `None` for a client that is not authenticated, for calls of a test, and in tasks that `handle` spawned. If the handler is called
/// for a check or a report in the same process, the client is the proxy that sent it.
///
/// Answers to checks are cached by the attributes of a request and not by its client. An answer that depends on the client must not be
/// cached ([`Check::no_cache`](crate::Check::no_cache)).
///
/// ```
/// use mixer_adapter_core::{Check, Code, adapter::peer};
///
/// fn for_ingress_only() -> Check {
///     match peer().as_deref() {
///         Some("spiffe://cluster.local/ns/istio-system/sa/ingress") => Check::allow().no_cache(),
///         _ => Check::deny(Code::PermissionDenied, "not the ingress").no_cache(),
///     }
/// }
///
/// assert_eq!(peer(), None, "nobody calls here");
/// ```
pub fn peer() -> Option<Arc<str>> {
    PEER.with_borrow(Clone::clone)
}

/// Runs a call of a client with this name.
#[doc(hidden)]
pub async fn with_peer<F: Future>(name: Option<Arc<str>>, call: F) -> F::Output {
    scoped(&PEER, name, call).await
}
