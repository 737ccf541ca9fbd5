//! Sources: the served state, and the streams that serve it.

pub(crate) mod catalogue;
mod derived;
pub(crate) mod dialogue;
pub(crate) mod driver;
pub(crate) mod entry;
mod feed;
mod last_good;
pub(crate) mod lifetime;
mod messages;
pub(crate) mod method;
pub(crate) mod pushed;
mod references;
pub(crate) mod selector;
pub(crate) mod snapshot;
pub(crate) mod status;
mod text;

pub use catalogue::Catalogue;
pub use dialogue::Meaning;
pub use driver::{ConfigServer, ConfigServerOptions};
pub use feed::feed;
pub use snapshot::Snapshot;
pub use status::{PeerStatus, WatchStatus};
