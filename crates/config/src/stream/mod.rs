//! Streams of configuration, whatever their protocol: collections of resources that a source pushes to sinks.
//!
//! What MCP and xDS share. The [sink](sink::Machine) is a state machine without sockets, clocks or tasks; so is each
//! [dialogue](source::Catalogue) of a source. Thin drivers run them. Either side may dial the other.

pub(crate) mod body;
mod change;
pub(crate) mod convert;
pub(crate) mod listen;
pub mod metrics;
pub(crate) mod name;
mod peer;
mod rate;
pub(crate) mod redial;
mod resource;
mod shorthand;
mod type_url;
mod version;
pub(crate) mod xdstp;

pub mod sink;
pub mod source;

pub use body::BodyError;
pub use change::Change;
pub use convert::check;
pub(crate) use listen::Admission;
pub use listen::{ServiceOptions, listen};
pub use mixer_adapter_net::Listener;
pub use peer::Peer;
pub(crate) use peer::open;
pub use rate::Rate;
pub use redial::DialOptions;
pub use resource::Resource;
pub use shorthand::{Shorthand, Summarize, Trace, Traced};
pub use type_url::{collection_of, type_urls_of};
pub use version::ContentVersion;
