//! The services of Envoy over an engine, and their protos.
#![allow(clippy::unwrap_used)]

mod engine;
mod protos;
mod services;
