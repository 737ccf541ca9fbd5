//! The generator on protos of authors.
#![allow(clippy::unwrap_used)]

mod author_names;
mod configs;
mod schema_errors;
mod templates;
