//! The string formats that functions parse: DNS names, email addresses, URIs, timestamps and patterns
//! (docs/behaviour/expressions.md#functions).

pub(crate) mod dns;
pub(crate) mod email;
pub(crate) mod pattern;
pub(crate) mod timestamp;
pub(crate) mod uri;
