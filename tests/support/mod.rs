//! A server on free ports, and clients that put on the wire what a test tells them to.

mod client;
mod http;
mod serving;

pub use client::{Client, Failure, any, post};
pub use serving::{Serving, until};
