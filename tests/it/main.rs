//! The server and the engine in this process, and the structure of the repository.
#![allow(clippy::unwrap_used)]

mod behaviour;
mod check_cache;
mod config_dispatch;
mod dispatch;
mod expression_cases;
#[cfg(feature = "cel")]
mod expression_cel;
mod expression_fields;
mod expression_properties;
mod expressions;
mod fake_mixer;
mod json_by_descriptor;
mod linear;
mod links;
mod live;
mod manifests;
mod mixer_api;
mod own_templates;
mod proofs;
mod protos;
#[path = "support/referenced.rs"]
mod referenced;
mod reload;
mod reuse;
mod shadow;
mod structure;
#[allow(dead_code, unreachable_pub, unused_imports, reason = "tests of other packages use the rest")]
mod support;
