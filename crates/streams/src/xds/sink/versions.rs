use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

use crate::stream::sink::type_urls::PushedVersions;

/// The server's versions of held resources, if those in the resources differ. They are passed from stream to stream.
#[derive(Clone, Debug, Default)]
pub struct Versions(Arc<Mutex<BTreeMap<String, Known>>>);

/// The versions of the resource and of the server, by name.
type Known = BTreeMap<String, (String, String)>;

impl Versions {
    /// Records the versions of an accepted push of a collection.
    pub(super) fn accepted(&self, collection: String, push: PushedVersions) {
        let mut collections = self.0.lock();
        let known = collections.entry(collection).or_default();
        if push.whole {
            known.clear();
        }
        for (name, own, servers) in push.changed {
            if own == servers {
                _ = known.remove(&name);
            } else {
                _ = known.insert(name, (own, servers));
            }
        }
    }

    /// Returns the versions to send for a collection with the given held resources. Drops resources that are no longer
    /// held.
    pub(super) fn to_send(
        &self,
        collection: &str,
        held: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let mut collections = self.0.lock();
        let Some(known) = collections.get_mut(collection) else { return held };
        known.retain(|name, (own, _)| held.get(name) == Some(own));
        let versions = held.into_iter().map(|(name, version)| match known.get(&name) {
            Some((_, servers)) => (name, servers.clone()),
            None => (name, version),
        });
        versions.collect()
    }
}
