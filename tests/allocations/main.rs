//! The number of allocations, in a process without other tests.
#![allow(clippy::unwrap_used)]

mod calls;
mod expressions;
#[path = "../it/linear.rs"]
mod linear;
