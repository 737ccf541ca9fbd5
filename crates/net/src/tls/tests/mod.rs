#![allow(clippy::unwrap_used)]

mod access;
mod connections;
