//! The source over MCP.

mod aggregated;
mod dial;
mod service;
mod stream;

pub(crate) use aggregated::{CHANGES, WHOLE};
pub use dial::dial;
pub(crate) use service::METHOD;
pub use service::{default_options, mount};
pub use stream::{McpStream, TRIGGER};
