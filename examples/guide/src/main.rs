//! The code of docs/guide, which tests/pages.rs compares with the pages. The program is that of docs/guide/behind-envoy.md.
#![allow(dead_code, unused_variables, clippy::let_and_return)]

mod answers;
mod context;
mod demo;
mod settings;
mod state;

mixer_adapter::include_proto!("guide"); // Params, from config.proto

mixer_adapter::main!(demo::Handler; sample = include_str!("../sample.yaml"));
