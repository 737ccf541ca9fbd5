//! MCP, the Mesh Configuration Protocol: collections of resources that a source pushes to sinks.
//!
//! Both sides are state machines without sockets, clocks or tasks ([`sink::Machine`], [`source::Machine`]), and thin drivers
//! around them. Either side may dial the other.

mod change;
mod name;
mod rate;
mod resource;
mod version;

pub mod sink;
pub mod source;

pub use change::{Change, Delivery, Fault, Rejection, Verdict};
pub use rate::Rate;
pub use resource::Resource;
pub use version::ContentVersion;
