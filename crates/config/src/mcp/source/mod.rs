//! The source over MCP.

mod aggregated;
mod dial;
mod machine;
mod service;

pub use dial::dial;
pub use machine::{Machine, TRIGGER};
pub use service::{default_options, mount};
