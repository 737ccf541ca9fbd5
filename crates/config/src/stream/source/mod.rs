//! Sources: the served state, and the streams that serve it.

mod catalogue;
mod derived;
mod dialogue;
mod driver;
mod entry;
mod feed;
mod last_good;
mod lifetime;
mod messages;
mod method;
mod pushed;
mod references;
mod selector;
mod snapshot;
mod status;
mod text;

pub use catalogue::Catalogue;
pub use dialogue::Meaning;
pub(crate) use dialogue::{Dialogue, Event, SinkId};
pub(crate) use driver::ExchangeLimits;
pub use driver::{ConfigServer, ConfigServerOptions};
pub(crate) use entry::{Entries, Entry};
pub use feed::feed;
pub(crate) use lifetime::{ALIASES, TTL, aliases, ttl};
pub(crate) use method::Method;
pub(crate) use pushed::{Encoding, Encodings, Pushed};
pub(crate) use selector::{NodeView, SELECTOR, Selector};
pub use snapshot::Snapshot;
pub(crate) use snapshot::{Delta, Known, View, json_elements};
pub use status::{PeerStatus, WatchStatus};
