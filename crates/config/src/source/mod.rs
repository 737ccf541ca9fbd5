//! Sources of configuration, and the source that reads files.
//!
//! A [`Source`] offers [`Update`](crate::Update)s. Each is accepted or refused as a whole (see
//! [`Acceptance`](crate::Acceptance)). A source sends the next state of a collection after the verdict on the last one,
//! so that intermediate states are skipped.

mod file_source;
mod file_status;
mod files;
mod parsed_files;
mod reload_requests;
mod status;
mod watcher;

use std::{pin::Pin, sync::Arc};

pub use file_source::FileSource;
pub use files::{FileFormat, MAX_FILE, is_test, text_files};
pub use parsed_files::read;
pub use reload_requests::ReloadRequests;
pub use status::{
    CollectionStatus, Journal, Message, RefusedVersion, SourceHandle, SourceStatus, StreamError, unix_time,
};
pub use watcher::watch_path;

use crate::offer::Offers;

/// Configuration that changes.
pub trait Source: Send {
    /// Returns the name of the source as it is configured: `fs:///etc/mixer`.
    fn name(&self) -> String;

    /// Returns a handle to the running source; `None` if it has no state to show.
    fn handle(&self) -> Option<Arc<dyn SourceHandle>> {
        None
    }

    /// Sends offers, the whole state first, until they are no longer accepted. Faults do not end a source: if it can
    /// read nothing, it reports that in an update without changes, and tries again.
    fn run(self: Box<Self>, offers: Offers) -> Pin<Box<dyn Future<Output = ()> + Send>>;
}
