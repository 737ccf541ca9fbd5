//! The examples as processes.
#![allow(clippy::unwrap_used)]

mod grpc;
mod rds;
mod rest;
