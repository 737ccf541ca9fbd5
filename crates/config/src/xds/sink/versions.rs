use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The versions by which a server knows what a sink holds, where the resources themselves say others. Streams pass it on.
#[derive(Clone, Debug, Default)]
pub struct Versions(Arc<Mutex<BTreeMap<String, Known>>>);

/// Name to the version that the resource says, and the one that the server does.
type Known = BTreeMap<String, (String, String)>;

/// How many pushes that wait for an answer are remembered.
const UNANSWERED: usize = 64;

/// What pushes say of versions, until the sink accepts them.
#[derive(Debug, Default)]
pub(super) struct Unanswered(VecDeque<(String, Push)>);

/// What one push says of versions.
#[derive(Debug, Default)]
pub(super) struct Push {
    pub(super) collection: String,
    pub(super) whole: bool,
    /// Names, with the version the resource says and the one the server does.
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
    /// The sink accepted a push.
    pub(super) fn accepted(&self, push: Push) {
        let mut collections = self.lock();
        let known = collections.entry(push.collection).or_default();
        if push.whole {
            known.clear();
        }
        for (name, own, servers) in push.changed {
            match own == servers {
                true => _ = known.remove(&name),
                false => _ = known.insert(name, (own, servers)),
            }
        }
    }

    /// The versions to send for a collection of which the sink holds these. Forgets resources that are not held any more.
    pub(super) fn to_send(
        &self,
        collection: &str,
        held: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let mut collections = self.lock();
        let Some(known) = collections.get_mut(collection) else { return held };
        known.retain(|name, (own, _)| held.get(name) == Some(own));
        let versions = held.into_iter().map(|(name, version)| match known.get(&name) {
            Some((_, servers)) => (name, servers.clone()),
            None => (name, version),
        });
        versions.collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
