//! The generator on protos of authors.
#![allow(clippy::unwrap_used)]

mod author_names;
mod configs;
mod protos;
mod schema_errors;
mod templates;
