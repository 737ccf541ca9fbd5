//! The core with the standard templates.
#![allow(clippy::unwrap_used)]

mod dynamic_templates;
mod templates;
