//! The services with adapters that are slow or fail.

mod access_logs;
mod backend;
mod denials;
mod rate_limits;
