//! A server on free ports, and clients that send arbitrary messages.

pub mod client;
pub mod http;
mod serving;

pub use client::{Client, ClientError, any, framed, post};
pub use serving::{Serving, until};
