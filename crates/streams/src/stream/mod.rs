//! Streams of configuration of any protocol: collections of resources that a source pushes to sinks.
//!
//! MCP and xDS share this module. The [sink](sink::SinkMachine) is a state machine without sockets, clocks or tasks;
//! so is each [dialogue](source::Catalogue) of a source. Thin drivers run them. Either side may open the connection.

pub(crate) mod admission;
pub(crate) mod body;
mod clock;
pub(crate) mod convert;
mod document;
mod keepalive;
pub(crate) mod listen;
pub mod metrics;
pub(crate) mod name;
pub(crate) mod peer;
pub(crate) mod raw_change;
pub(crate) mod raw_resource;
pub(crate) mod redial;
pub(crate) mod shorthand;
pub(crate) mod type_url;
pub(crate) mod version;
pub(crate) mod xdstp;

pub mod sink;
pub mod source;

pub use admission::ServiceOptions;
pub use body::BodyError;
pub use convert::check;
pub use keepalive::Keepalive;
pub use listen::{ListenOptions, listen, listen_with};
pub use peer::Peer;
pub use raw_change::RawChange;
pub use raw_resource::RawResource;
pub use redial::DialOptions;
pub use shorthand::{Shorthand, Summarize, Trace, Traced};
pub use type_url::{collection_of, type_urls_of};
pub use version::ContentVersion;
