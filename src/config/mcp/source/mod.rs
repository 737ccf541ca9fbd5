//! The source: serves collections, and pushes their changes to sinks.

mod catalogue;
mod machine;
mod snapshot;

pub use catalogue::Catalogue;
pub use machine::{Machine, Meaning, TRIGGER};
pub use snapshot::Snapshot;
