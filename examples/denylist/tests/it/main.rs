//! The smallest useful adapter, as a program.
#![allow(clippy::unwrap_used)]

mod config;
mod program;
