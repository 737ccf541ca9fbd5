//! Configuration from texts and files.
#![allow(clippy::unwrap_used)]

mod config_files;
mod config_text;
