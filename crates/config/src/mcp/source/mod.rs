//! The source: serves collections, and pushes their changes to sinks.

mod catalogue;
mod dial;
mod dialogue;
mod driver;
mod machine;
mod method;
mod service;
mod snapshot;
mod status;

pub use catalogue::Catalogue;
pub use dial::dial;
pub(crate) use dialogue::{Dialogue, Event, SinkId};
pub use driver::{ConfigServer, ConfigServerOptions};
pub use machine::{Machine, Meaning, TRIGGER};
pub(crate) use method::Method;
pub use service::ResourceSourceService;
pub use snapshot::Snapshot;
pub(crate) use snapshot::{Delta, Entries, Entry};
pub use status::{PeerStatus, WatchStatus};
