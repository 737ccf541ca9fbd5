use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use parking_lot::Mutex;

/// The server's versions of held resources, if those in the resources differ. They are passed from stream to stream.
#[derive(Clone, Debug, Default)]
pub struct Versions(Arc<Mutex<BTreeMap<String, Known>>>);

/// The versions of the resource and of the server, by name.
type Known = BTreeMap<String, (String, String)>;

/// The number of remembered pushes without an answer.
const UNANSWERED: usize = 64;

/// The versions of pushes that the sink has not accepted yet.
#[derive(Debug, Default)]
pub(super) struct Unanswered(VecDeque<(String, Push)>);

/// The versions of one push.
#[derive(Debug, Default)]
pub(super) struct Push {
    pub(super) collection: String,
    pub(super) whole: bool,
    /// Names, with the versions of the resource and of the server.
    pub(super) changed: Vec<(String, String, String)>,
}

impl Unanswered {
    pub(super) fn push(&mut self, nonce: String, push: Push) {
        if self.0.len() == UNANSWERED {
            self.0.pop_front();
        }
        self.0.push_back((nonce, push));
    }

    pub(super) fn take(&mut self, collection: &str, nonce: &str) -> Option<Push> {
        let place =
            self.0.iter().position(|(other, push)| other == nonce && push.collection == collection)?;
        self.0.remove(place).map(|(_, push)| push)
    }
}

impl Versions {
    /// Records the versions of an accepted push.
    pub(super) fn accepted(&self, push: Push) {
        let mut collections = self.0.lock();
        let known = collections.entry(push.collection).or_default();
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
