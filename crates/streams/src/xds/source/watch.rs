use std::{collections::BTreeMap, mem::take, sync::Arc};

use bytes::Bytes;

use super::{
    name_set::{NameSet, name_of},
    subscription::{Owed, Subscription},
};
use crate::stream::{
    name::versions_size,
    source::{
        dialogue::Meaning,
        entry::{Entries, Entry},
        pushed::Encoding,
        snapshot::{Delta, Snapshot},
    },
};
use mixer_adapter_core::proto;

/// The state of a type at a client, and its missing resources: the same for both variants of the protocol.
///
/// The client has the subscribed resources of `base`, except for resources in `owed` or `doubt`. `base` is shared with
/// other streams, so that a watch stores only a few names.
#[derive(Debug, Default)]
pub(super) struct Watch {
    subscription: Subscription,
    base: Option<Entries>,
    /// The client's versions from before this stream, by name, and about how many bytes they take.
    claims: (BTreeMap<String, String>, usize),
    /// The requested resources, whether they changed or not.
    owed: Owed,
    requested: bool,
    /// The refused resources, which the client may have applied in part. They are sent with the next change.
    doubt: Owed,
    /// Removed resources, which are served until nothing refers to them.
    withheld: Entries,
    /// The resources of the unanswered push.
    pending: Option<Owed>,
    /// The nonce and version of the last push.
    sent: Option<(String, String)>,
    /// Whether the last push was refused, and its resources are still in doubt.
    refused: bool,
}

/// The representation of resources in pushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Representation {
    /// All resources; others are deleted.
    Whole,
    /// Changed resources; removals are not sent.
    Parts,
    /// Changed resources, and names of removed ones.
    Changes,
}

/// The content of a push.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) version: String,
    pub(super) entries: Selection,
    pub(super) removed: Vec<Arc<str>>,
    /// Whether it is a heartbeat: the client has the resources, and their time to live starts again.
    pub(super) heartbeat: bool,
    /// Whether the client may have lacked some of the resources.
    pub(super) adds: bool,
}

/// The resources of a push.
#[derive(Debug)]
pub(super) enum Selection {
    /// All resources.
    All(Snapshot),
    /// Some of them.
    Some(Vec<Arc<Entry>>),
}

impl Selection {
    fn is_empty(&self) -> bool {
        match self {
            Self::All(state) => state.entries().is_empty(),
            Self::Some(entries) => entries.is_empty(),
        }
    }

    /// Returns the resources as a field of a push, each converted by `message`: unshared resources, and encoded
    /// resources that are shared with other pushes.
    pub(super) fn encode<M: prost::Message>(
        &self,
        encoding: Encoding,
        message: impl Fn(&Entry) -> M,
    ) -> (Vec<M>, Bytes) {
        match self {
            Self::All(state) => (Vec::new(), state.encoded(encoding, RESOURCES, message)),
            Self::Some(entries) => (entries.iter().map(|entry| message(entry)).collect(), Bytes::new()),
        }
    }
}

/// The number of the field of a response that holds its resources, in both variants.
const RESOURCES: u32 = 2;

/// The meaning of the nonce of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nonce {
    /// No nonce, or nothing was pushed yet: a request that answers no push.
    None,
    /// The nonce of the unanswered push, which the request answers.
    Pending,
    /// The nonce of the last push, which was answered before.
    Last,
    /// The nonce of an older push, or of another stream.
    Stale,
}

impl Watch {
    /// Creates the state of a client that subscribes to the resources that it is owed.
    pub(super) fn new(subscription: Subscription, mut owed: Owed, claims: BTreeMap<String, String>) -> Self {
        let requested = !owed.is_empty();
        // Of the resources that it has it receives the differences.
        owed.remove(&claims);
        let size = versions_size(&claims);
        Self { subscription, owed, requested, claims: (claims, size), ..Self::default() }
    }

    /// Returns about how many bytes the names of resources take that it holds.
    pub(super) fn names_size(&self) -> usize {
        let pending = self.pending.as_ref().map_or(0, |pending| pending.names.size());
        let sets = [&self.owed.names, &self.doubt.names, self.subscription.names()];
        sets.iter().map(|names| names.size()).sum::<usize>() + pending + self.claims.1
    }

    pub(super) fn nonce(&self, nonce: &str) -> Nonce {
        match &self.sent {
            Some((last, _)) if last == nonce && self.is_pending() => Nonce::Pending,
            Some((last, _)) if last == nonce => Nonce::Last,
            Some(_) if !nonce.is_empty() => Nonce::Stale,
            _ => Nonce::None,
        }
    }

    pub(super) fn subscription(&mut self) -> &mut Subscription {
        &mut self.subscription
    }

    /// Handles a request that is not stale, which subscribes and may answer the unanswered push.
    pub(super) fn answered(&mut self, nonce: Nonce, owed: Owed, error: Option<proto::Status>) -> Meaning {
        let asks = !owed.is_empty();
        self.requested |= asks;
        self.owed.extend(owed);
        let meaning = match (nonce, error) {
            (Nonce::Pending, error) => {
                let told = self.pending.take().unwrap_or_default();
                self.refused = error.is_some();
                match error {
                    Some(error) => {
                        self.doubt.extend(told);
                        Meaning::Refused(error)
                    }
                    None => Meaning::Accepted,
                }
            }
            (Nonce::None, _) => Meaning::Requested,
            _ if asks => Meaning::Requested,
            _ => Meaning::Stale,
        };
        self.reconsider();
        meaning
    }

    /// Clears the refusal if the client unsubscribed from refused resources, without which it may accept the push.
    fn reconsider(&mut self) {
        let doubts = self.doubt.names.len();
        self.doubt.names.retain(|name| self.subscription.contains(name));
        if self.doubt.names.len() < doubts || (self.doubt.all && !self.subscription.is_wildcard()) {
            self.owed.extend(take(&mut self.doubt));
            self.requested |= !self.owed.is_empty();
            self.refused &= self.requested;
        }
    }

    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    pub(super) fn is_requested(&self) -> bool {
        self.requested
    }

    /// Returns the version of the last push.
    pub(super) fn version(&self) -> Option<&String> {
        self.sent.as_ref().map(|(_, version)| version)
    }

    /// Returns whether a state may have to be sent: it is not the last one, or a request is open.
    pub(super) fn has_news(&self, state: &Snapshot) -> bool {
        self.requested || !self.base.as_ref().is_some_and(|base| base.ptr_eq(state.entries()))
    }

    /// Returns whether the client accepted the whole state.
    pub(super) fn is_settled(&self, state: Option<&Snapshot>) -> bool {
        !self.is_pending() && !self.refused && !state.is_some_and(|state| self.has_news(state))
    }

    /// Returns whether a resource was removed that the client may still have.
    pub(super) fn withholds(&self) -> bool {
        !self.withheld.is_empty() && !self.is_pending() && !self.refused
    }

    /// Returns the changes of a state for the client, if they have to be sent; removals may be withheld. Later changes
    /// are relative to this state.
    pub(super) fn next(
        &mut self,
        state: &Snapshot,
        form: Representation,
        withhold: bool,
        nonce: &str,
    ) -> Option<Content> {
        let requested = take(&mut self.requested);
        let mut owed = take(&mut self.owed);
        let base = self.base.clone();
        let Delta { changed, mut removed } = self.take_changes(state);
        let adds = !owed.is_empty()
            || !changed.iter().all(|entry| base.as_ref().is_some_and(|base| base.contains_key(entry.name())));
        changed.iter().for_each(|entry| _ = self.withheld.remove(entry.name()));
        // Clients that lack or refused a removed resource do not need it until the removal.
        let lacked = |name: &str| owed.contains(name) || self.doubt.contains(name);
        let tells = form != Representation::Parts || removed.iter().any(|(name, _)| lacked(name));
        if withhold {
            self.withheld.extend(removed.extract_if(.., |(name, _)| !lacked(name)));
        } else {
            let withheld = take(&mut self.withheld).into_iter();
            removed.extend(withheld.filter(|(_, entry)| self.subscription.selects(entry)));
        }
        let moved = !changed.is_empty() || (!removed.is_empty() && tells);
        if moved || owed.all {
            owed.extend(take(&mut self.doubt));
        }
        let (content, told) = match form {
            Representation::Whole if moved || requested => (self.whole(state), self.everything()),
            Representation::Whole => return None,
            Representation::Parts | Representation::Changes => {
                let (content, told) = self.news(state, Delta { changed, removed }, owed);
                let removes = form == Representation::Changes && !content.removed.is_empty();
                // An empty response is an answer to a client with a wildcard subscription, in parts to its first request alone.
                let is_first = form == Representation::Changes || self.sent.is_none();
                let answers = is_first && requested && self.subscription.is_wildcard();
                if content.entries.is_empty() && !removes && !answers {
                    self.refused &= !self.doubt.is_empty();
                    return None;
                }
                (content, told)
            }
        };
        self.sent = Some((nonce.to_owned(), content.version.clone()));
        self.pending = Some(told);
        Some(Content { adds, ..content })
    }

    /// Returns the resources with a time to live that the client has in this state. For a type with complete responses
    /// all resources are sent again: missing ones would be deleted.
    pub(super) fn heartbeat(
        &mut self,
        state: &Snapshot,
        form: Representation,
        nonce: &str,
    ) -> Option<Content> {
        let base = self.base.as_ref()?;
        // Changes that wait for other types are sent in their order, and renew everything.
        if form == Representation::Whole && self.has_news(state) {
            return None;
        }
        let entries: Vec<_> = state
            .expiring()
            .filter(|entry| {
                let name = entry.name();
                self.subscription.selects(entry)
                    && !self.owed.contains(name)
                    && !self.doubt.contains(name)
                    && base.get(name).is_some_and(|had| had == *entry)
            })
            .cloned()
            .collect();
        // A client recognises the heartbeats of a whole set by the version that it accepted last.
        if entries.is_empty() || (form != Representation::Changes && self.refused) {
            return None;
        }
        let (content, told) = if form == Representation::Whole {
            (self.whole(state), self.everything())
        } else {
            let last = self.version().filter(|_| form == Representation::Parts).cloned();
            let version = last.unwrap_or_else(|| state.version().to_string());
            let entries = Selection::Some(entries);
            let content = Content { version, entries, removed: Vec::new(), heartbeat: true, adds: false };
            (content, Owed::default())
        };
        self.sent = Some((nonce.to_owned(), content.version.clone()));
        self.pending = Some(told);
        Some(content)
    }

    /// Returns the subscribed differences from the last state, and makes this one the last.
    fn take_changes(&mut self, state: &Snapshot) -> Delta {
        let now = state.entries();
        let (claims, _) = take(&mut self.claims);
        let base = match self.base.replace(now.clone()) {
            Some(base) => base,
            None if claims.is_empty() => now.clone(),
            None => state.held(&claims, Entry::version),
        };
        let mut delta = Delta::between(&base, now);
        delta.changed.retain(|entry| self.subscription.selects(entry));
        delta
            .removed
            .retain(|(name, entry)| self.subscription.contains(name) || self.subscription.selects(entry));
        delta
    }

    /// Returns all subscribed resources, and those withheld from removal.
    fn whole(&self, state: &Snapshot) -> Content {
        let kept = self.withheld.values().filter(|entry| self.subscription.selects(entry));
        let mut version = state.version().to_string();
        if !self.withheld.is_empty() {
            // The response without them has another version.
            version = format!("{version}-{}", self.withheld.len());
        }
        let kept: Vec<_> = kept.cloned().collect();
        let entries = if self.subscription.is_wildcard() && kept.is_empty() {
            Selection::All(state.clone())
        } else {
            Selection::Some(self.subscribed(state).into_iter().chain(kept).collect())
        };
        Content { version, entries, removed: Vec::new(), heartbeat: false, adds: false }
    }

    /// Returns the changed and the owed resources, and their names.
    fn news(&self, state: &Snapshot, delta: Delta, owed: Owed) -> (Content, Owed) {
        let mut names: NameSet = delta.removed.into_iter().map(|(name, _)| (name, true)).collect();
        names.extend(owed.names.into_iter().filter(|(name, _)| self.subscription.contains(name)));
        names.extend(delta.changed.iter().map(|entry| name_of(entry.name(), Some(state.entries()))));
        let entries = match (owed.all, self.subscription.is_wildcard()) {
            (true, true) => Selection::All(state.clone()),
            (true, false) => Selection::Some(self.subscribed(state)),
            // A resource may be requested by several of its names.
            (false, _) => Selection::Some(state.find_each(names.iter())),
        };
        let gone =
            |name: &&Arc<str>| state.find_all(name).next().is_none() && !self.withheld.contains_key(*name);
        let removed = names.iter().filter(gone).cloned().collect();
        let version = state.version().to_string();
        let content = Content { version, entries, removed, heartbeat: false, adds: false };
        let mut told = if owed.all { self.everything() } else { Owed::default() };
        told.names.extend(names);
        (content, told)
    }

    /// Returns the whole subscription, by name unless it is a wildcard.
    fn everything(&self) -> Owed {
        if self.subscription.is_wildcard() {
            Owed::all()
        } else {
            Owed { all: false, names: self.subscription.names().clone() }
        }
    }

    /// Returns all subscribed resources of a state.
    fn subscribed(&self, state: &Snapshot) -> Vec<Arc<Entry>> {
        if self.subscription.is_wildcard() {
            return state.entries().values().cloned().collect();
        }
        state.find_each(self.subscription.names().iter())
    }
}
