//! The services with adapters that are slow or fail.
#![allow(clippy::unwrap_used)]

mod backend;
mod rate_limits;
