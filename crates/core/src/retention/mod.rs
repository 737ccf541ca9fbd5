//! State that outlives the handlers that use it: counters and quotas must not begin anew because a handler was evicted from a
//! cache and is opened again.
//!
//! An adapter puts such state into a type that implements [`Retain`], and takes it in `open` from [`Context::retained`](crate::Context::retained). The
//! server retains it for a limited time in a limited amount of memory. [`Retention`] is the store behind that; an adapter whose handlers
//! share state by something else than their configuration has its own.

mod retained;
mod store;

pub use retained::Retained;
#[doc(hidden)]
pub use retained::RetainedStates;
pub use store::{Entry, Lease, Retention, RetentionLimits};

use std::any::Any;

/// State that can be retained without a user.
pub trait Retain: Any + Send + Sync {
    /// Returns an estimate of the memory it takes, in bytes, or 0 if nothing is lost without it. Called when its last user ends.
    fn bytes(&self) -> usize;
}
