//! The time of the runtime, which tests may have stopped.

use std::{future::pending, time::Instant};

pub(crate) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Waits until that time; forever without one.
pub(crate) async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => pending().await,
    }
}
