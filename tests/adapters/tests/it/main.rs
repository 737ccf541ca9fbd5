//! The program of the test adapters in a process of its own, the compliance suite in a process without other work, and what `include_proto!` includes.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod compliance;
mod exit;
mod limits;
mod logs;
mod packages;
mod program;
#[path = "../../../it/support/mod.rs"]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "tests of other packages use the rest")]
mod support;
