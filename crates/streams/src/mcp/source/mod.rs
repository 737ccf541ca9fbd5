//! The source over MCP.

mod aggregated;
mod dial;
mod service;
mod stream;

pub use dial::dial;
pub use service::{default_options, mount};
pub use stream::{McpStream, TRIGGER};
