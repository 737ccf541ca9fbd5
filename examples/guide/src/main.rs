//! The code of docs/guide, which tests/pages.rs compares with the pages.
#![allow(dead_code, unused_variables, clippy::let_and_return)]

mod answers;
mod context;
mod settings;
mod state;

use state::{Lookup, Services};
use std::time::SystemTime;

mixer_adapter::include_proto!("guide"); // Params, from config.proto

mixer_adapter::main!(Lookup; state = Services { clock: SystemTime::now });
