//! The program `mixer-adapter` in a process of its own, and the bundled adapters.
#![allow(clippy::unwrap_used)]

mod access;
mod article;
mod ask;
mod call;
mod call_others;
mod call_sessions;
mod commands;
mod compiled;
mod completions;
mod comply;
mod config_tests;
mod configurations;
mod curl;
mod decision_log;
mod decisions;
mod deploy;
mod differential;
mod envoy;
mod envoy_services;
mod eval;
mod evolution;
mod examples;
mod explain;
mod external_decisions;
mod fake_mixer;
mod first_configuration;
mod foreign_configurations;
mod manifest;
mod mcp;
mod metrics;
mod mistakes;
mod new;
mod odd_requests;
mod operator_commands;
#[cfg(feature = "otlp")]
mod otlp;
mod page;
#[cfg(feature = "proto")]
mod proto;
mod rate_limits;
mod readme;
mod reference;
#[path = "../../../tests/it/support/referenced.rs"]
mod referenced;
mod secured_commands;
mod security;
mod serve;
mod several_servers;
mod shared_sessions;
mod shutdown;
mod slips;
mod source;
mod support;
mod try_envoy;
mod tutorial;
mod validate;
mod validate_warnings;
mod watch;
