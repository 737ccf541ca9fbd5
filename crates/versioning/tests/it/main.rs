//! The versioning policy with packages as users write them.
#![allow(clippy::unwrap_used)]

mod envoy;
mod stories;
mod support;
mod translations;
mod violations;
