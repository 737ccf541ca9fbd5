use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::spawn_blocking;

use super::{driver::ConfigServer, last_good::LastGood};
use crate::{
    stream::{convert, raw_change::RawChange},
    types::Types,
};
use mixer_adapter_config::{Acceptance, Apply, Collection, Update, ValidationError, Verdict, source::Source};

/// Serves the configuration of a source, such as files, to sinks, as messages of these types, until the source ends.
///
/// Resources that are invalid or cannot be encoded are logged; the previous resources of their file stay until it has
/// no fault.
pub async fn feed(server: ConfigServer, source: impl Source + 'static, types: Types) {
    let last_good = Arc::default();
    Acceptance::new(Feed { server, types, last_good }).run(vec![source.into()]).await;
}

#[derive(Clone)]
struct Feed {
    server: ConfigServer,
    types: Types,
    last_good: Arc<Mutex<LastGood>>,
}

impl Apply for Feed {
    /// Accepts every update: its valid resources are served.
    async fn apply(&mut self, update: Update) -> Verdict {
        let feed = self.clone();
        // A directory may be large.
        if let Err(error) = spawn_blocking(move || feed.serve(update)).await {
            tracing::error!(%error, "serving the configuration failed; please report this as a bug");
        }
        Ok(())
    }
}

impl Feed {
    fn serve(self, update: Update) {
        let mut faults = update.faults;
        let mut changes = Vec::with_capacity(update.changes.len());
        for change in &update.changes {
            let (change, unfit) = convert::encode(&self.types, change);
            changes.push(change);
            faults.extend(unfit);
        }
        faults.extend(changes.iter().filter_map(|change| untyped(&self.types, change)));
        let known = self.server.faults();
        for fault in faults.iter().filter(|fault| !known.contains(fault)) {
            tracing::warn!(source = %update.source, "{fault}");
        }
        let mut last_good = self.last_good.lock();
        let was_stale = last_good.stale();
        for kept in last_good.apply(&update.changes, &changes, &faults) {
            // Resources that were encoded before can be encoded.
            let (kept, _) = convert::encode(&self.types, &kept);
            changes.retain(|change| change.collection != kept.collection);
            changes.push(kept);
        }
        let stale = last_good.stale();
        if stale != was_stale {
            tracing::warn!(source = %update.source, resources = stale, "resources of files with faults are served as they were");
        }
        self.server.set_faults(faults);
        self.server.apply_all(&changes);
    }
}

/// Returns a warning that resources are served as a `google.protobuf.Struct` where sinks expect the message of the
/// collection.
fn untyped(types: &Types, change: &RawChange) -> Option<ValidationError> {
    let expected = Collection::new(&change.collection).message()?;
    let missing = types.find(expected).is_none() && !change.resources.is_empty();
    let reason = format!(
        "{}: served as google.protobuf.Struct; sinks that check types expect {expected}, whose descriptors `source --descriptors` can add",
        change.collection
    );
    missing.then(|| ValidationError::warning(reason))
}
