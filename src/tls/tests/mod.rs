#![allow(clippy::unwrap_used)]

mod access;
mod connections;
pub(crate) mod pki;
