//! The engine.

pub mod remote;
