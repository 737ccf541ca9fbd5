//! Network plumbing that the crates of mixer-adapter share.

pub mod tls;
