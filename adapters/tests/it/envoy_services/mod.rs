//! The services of Envoy, called by the real one with the bootstrap that `envoy-config` prints.

mod applications;
mod bad_input;
mod bootstrap;
mod checks;
mod connections;
mod counts;
mod denials;
mod examples;
mod external;
mod failures;
mod limits;
mod logs;
mod mapping;
mod mesh;
mod messages;
mod resources;
mod secured;
mod settings;
mod shadow;
mod upstreams;

use crate::support;
