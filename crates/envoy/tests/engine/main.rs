//! The services with adapters that are slow or fail.
#![allow(clippy::unwrap_used)]

mod access_logs;
mod backend;
mod denials;
mod rate_limits;
