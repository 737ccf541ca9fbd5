//! MCP, the Mesh Configuration Protocol: collections of resources that a source pushes to sinks.
//!
//! Both sides are state machines without sockets, clocks or tasks ([`sink::Machine`], [`source::Machine`]), and thin drivers
//! around them. Either side may dial the other.

pub(super) mod body;
mod change;
pub(crate) mod convert;
mod feed;
pub(super) mod listen;
pub mod metrics;
mod name;
mod peer;
mod rate;
pub(super) mod redial;
mod resource;
mod version;

pub mod sink;
pub mod source;

pub use body::BodyError;
pub use change::Change;
pub use feed::feed;
pub(crate) use listen::Admission;
pub use listen::{ServiceOptions, listen};
pub use mixer_adapter_net::Listener;
pub use peer::Peer;
pub use rate::Rate;
pub use redial::DialOptions;
pub use resource::Resource;
pub use version::ContentVersion;

#[cfg(all(test, feature = "tls"))]
mod secured_tests;
