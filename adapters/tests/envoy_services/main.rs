//! The services of Envoy, called by the real one with the bootstrap that `envoy-config` prints.
#![allow(clippy::unwrap_used)]

mod applications;
mod bad_input;
mod bootstrap;
mod checks;
mod connections;
mod denials;
mod failures;
mod limits;
mod logs;
mod mapping;
mod mesh;
mod messages;
mod resources;
mod secured;
mod settings;
#[path = "../support/mod.rs"]
mod support;
