use std::{
    collections::{BTreeMap, BTreeSet},
    mem::take,
    sync::Arc,
};

use bytes::Bytes;

use super::subscription::{Owed, Subscription};
use crate::stream::source::{Delta, Encoding, Entries, Entry, Meaning, Snapshot};
use mixer_adapter_core::proto;

/// What a client has of a type, and what it lacks: the same for both forms of the protocol.
///
/// The client has what `base` holds of what it subscribes to, except for the resources that it is `owed` or that are in `doubt`. So
/// one state, shared with the other streams, and a few names say all of it.
#[derive(Debug, Default)]
pub(super) struct Watch {
    subscription: Subscription,
    base: Option<Entries>,
    /// What the client says it had before this stream: name to version.
    claims: BTreeMap<String, String>,
    /// What it asked for, whether it changed or not.
    owed: Owed,
    asked: bool,
    /// What it refused, some of which it may have taken all the same. It is sent with the next change.
    doubt: Owed,
    /// What is gone, and goes on being served until nothing refers to it.
    withheld: Entries,
    /// The resources in the push under way.
    pending: Option<Owed>,
    /// The nonce and version of the last push.
    sent: Option<(String, String)>,
    /// Whether the last push was refused, and what is in doubt since is still there.
    refused: bool,
}

/// How pushes represent resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Representation {
    /// All there are; others are deleted.
    Whole,
    /// What changed; deletions are not sent.
    Parts,
    /// What changed, and what is gone.
    Changes,
}

/// What is sent.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) version: String,
    pub(super) entries: Selection,
    pub(super) removed: Vec<Arc<str>>,
    /// Whether the client has the resources, and may use them for their time to live again.
    pub(super) heartbeat: bool,
}

/// The resources of a push.
#[derive(Debug)]
pub(super) enum Selection {
    /// All there are.
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

    /// The resources as a field of a push, each made a message by `message`: those that are in the message, and the encoded ones that
    /// are shared with other pushes.
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

/// What a nonce says of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nonce {
    /// It is none, or nothing was pushed yet: a request of its own.
    None,
    /// That of the push under way, which the request answers.
    Pending,
    /// That of the last push, which was answered before.
    Last,
    /// That of an older push, or of another stream.
    Stale,
}

impl Watch {
    /// Of a client that subscribes to what it is owed.
    pub(super) fn new(subscription: Subscription, mut owed: Owed, claims: BTreeMap<String, String>) -> Self {
        let asked = !owed.is_empty();
        // Of what it has it gets what differs.
        owed.remove(&claims);
        Self { subscription, owed, asked, claims, ..Self::default() }
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

    /// A request that is not stale arrived, which asks for something and may answer the push under way.
    pub(super) fn answered(&mut self, nonce: Nonce, owed: Owed, error: Option<proto::Status>) -> Meaning {
        let asks = !owed.is_empty();
        self.asked |= asks;
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

    /// Without what it does not want any more, the client may accept what it refused with that.
    fn reconsider(&mut self) {
        let doubts = self.doubt.names.len();
        self.doubt.names.retain(|name| self.subscription.contains(name));
        if self.doubt.names.len() < doubts || (self.doubt.all && !self.subscription.is_wildcard()) {
            self.owed.extend(take(&mut self.doubt));
            self.asked |= !self.owed.is_empty();
            self.refused &= self.asked;
        }
    }

    pub(super) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    pub(super) fn is_asked(&self) -> bool {
        self.asked
    }

    /// The version of the last push.
    pub(super) fn version(&self) -> Option<&String> {
        self.sent.as_ref().map(|(_, version)| version)
    }

    /// Whether a state may have to be sent: it is not the last one, or there is an open request.
    pub(super) fn has_news(&self, state: &Snapshot) -> bool {
        self.asked || !self.base.as_ref().is_some_and(|base| base.ptr_eq(state.entries()))
    }

    /// Whether the client accepted all there is.
    pub(super) fn is_settled(&self, state: Option<&Snapshot>) -> bool {
        !self.is_pending() && !self.refused && !state.is_some_and(|state| self.has_news(state))
    }

    /// Whether a resource was deleted that the client could still have.
    pub(super) fn withholds(&self) -> bool {
        !self.withheld.is_empty() && !self.is_pending() && !self.refused
    }

    /// What a state has that the client lacks, if it is to be sent; removals may be withheld. Later changes are relative to this state.
    pub(super) fn next(
        &mut self,
        state: &Snapshot,
        form: Representation,
        withhold: bool,
        nonce: &str,
    ) -> Option<Content> {
        let asked = take(&mut self.asked);
        let mut owed = take(&mut self.owed);
        let Delta { changed, mut removed } = self.take_changes(state);
        changed.iter().for_each(|entry| _ = self.withheld.remove(entry.name()));
        // A client that does not have something need not keep it, and one that refused it would refuse it again.
        let lacked = |name: &str| owed.contains(name) || self.doubt.contains(name);
        let tells = form != Representation::Parts || removed.iter().any(|(name, _)| lacked(name));
        if withhold {
            let kept = |(name, _): &mut (Arc<str>, _)| !lacked(name);
            self.withheld.extend(removed.extract_if(.., kept));
        } else {
            let withheld = take(&mut self.withheld).into_iter();
            removed.extend(withheld.filter(|(_, entry)| self.subscription.selects(entry)));
        }
        let moved = !changed.is_empty() || (!removed.is_empty() && tells);
        if moved || owed.all {
            owed.extend(take(&mut self.doubt));
        }
        let (content, told) = match form {
            Representation::Whole if moved || asked => (self.whole(state), self.everything()),
            Representation::Whole => return None,
            Representation::Parts | Representation::Changes => {
                let (content, told) = self.news(state, Delta { changed, removed }, owed);
                let removes = form == Representation::Changes && !content.removed.is_empty();
                // That there is nothing is an answer to a client that wants everything.
                let answers = form == Representation::Changes && asked && self.subscription.is_wildcard();
                if content.entries.is_empty() && !removes && !answers {
                    self.refused &= !self.doubt.is_empty();
                    return None;
                }
                (content, told)
            }
        };
        self.sent = Some((nonce.to_owned(), content.version.clone()));
        self.pending = Some(told);
        Some(content)
    }

    /// The resources with a time to live that the client has as they are in this state. Of a type whose responses are whole everything
    /// is sent again: what is missing would be deleted.
    pub(super) fn heartbeat(
        &mut self,
        state: &Snapshot,
        form: Representation,
        nonce: &str,
    ) -> Option<Content> {
        let base = self.base.as_ref()?;
        // News that wait for other types go out in their order, and renew everything.
        if form == Representation::Whole && self.has_news(state) {
            return None;
        }
        let lacked = |name: &str| self.owed.contains(name) || self.doubt.contains(name);
        let has = |entry: &&Arc<Entry>| {
            let name = entry.name();
            self.subscription.selects(entry)
                && !lacked(name)
                && base.get(name).is_some_and(|had| had == *entry)
        };
        let entries: Vec<_> = state.expiring().filter(has).cloned().collect();
        // A client recognises the heartbeats of a whole set by the version that it accepted last.
        if entries.is_empty() || (form != Representation::Changes && self.refused) {
            return None;
        }
        let heartbeat = |version| {
            let entries = Selection::Some(entries);
            (Content { version, entries, removed: Vec::new(), heartbeat: true }, Owed::default())
        };
        let (content, told) = match form {
            Representation::Whole => (self.whole(state), self.everything()),
            Representation::Parts => heartbeat(self.version()?.clone()),
            Representation::Changes => heartbeat(state.version().to_string()),
        };
        self.sent = Some((nonce.to_owned(), content.version.clone()));
        self.pending = Some(told);
        Some(content)
    }

    /// Returns what is subscribed and differs from the last state, and makes this one the last.
    fn take_changes(&mut self, state: &Snapshot) -> Delta {
        let now = state.entries();
        let claims = take(&mut self.claims);
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

    /// Everything subscribed, and what is withheld from deletion.
    fn whole(&self, state: &Snapshot) -> Content {
        let kept = self.withheld.values().filter(|entry| self.subscription.selects(entry));
        let mut version = state.version().to_string();
        if !self.withheld.is_empty() {
            // What is sent when they go has another version.
            version = format!("{version}-{}", self.withheld.len());
        }
        let kept: Vec<_> = kept.cloned().collect();
        let entries = match self.subscription.is_wildcard() && kept.is_empty() {
            true => Selection::All(state.clone()),
            false => Selection::Some(self.wanted(state).into_iter().chain(kept).collect()),
        };
        Content { version, entries, removed: Vec::new(), heartbeat: false }
    }

    /// What changed and what is owed, and the names of it.
    fn news(&self, state: &Snapshot, delta: Delta, owed: Owed) -> (Content, Owed) {
        let mut names: BTreeSet<Arc<str>> = delta.removed.into_iter().map(|(name, _)| name).collect();
        names.extend(owed.names.into_iter().filter(|name| self.subscription.contains(name)));
        names.extend(delta.changed.iter().map(|entry| Arc::from(entry.name())));
        // A resource may be asked for by several of its names.
        let there = names.iter().flat_map(|name| state.find_all(name));
        let there: BTreeMap<_, _> = there.map(|entry| (entry.name(), entry)).collect();
        let entries = match (owed.all, self.subscription.is_wildcard()) {
            (true, true) => Selection::All(state.clone()),
            (true, false) => Selection::Some(self.wanted(state)),
            (false, _) => Selection::Some(there.into_values().cloned().collect()),
        };
        let gone =
            |name: &&Arc<str>| state.find_all(name).next().is_none() && !self.withheld.contains_key(&***name);
        let removed = names.iter().filter(gone).cloned().collect();
        let version = state.version().to_string();
        let content = Content { version, entries, removed, heartbeat: false };
        let mut told = if owed.all { self.everything() } else { Owed::default() };
        told.names.extend(names);
        (content, told)
    }

    /// All that is wanted, by name unless it is everything.
    fn everything(&self) -> Owed {
        let names = self.subscription.names().filter(|_| !self.subscription.is_wildcard());
        Owed { all: self.subscription.is_wildcard(), names: names.cloned().collect() }
    }

    /// All that is wanted of a state.
    fn wanted(&self, state: &Snapshot) -> Vec<Arc<Entry>> {
        if self.subscription.is_wildcard() {
            return state.entries().values().cloned().collect();
        }
        let named = self.subscription.names().flat_map(|name| state.find_all(name));
        let named: BTreeMap<_, _> = named.map(|entry| (entry.name(), entry)).collect();
        named.into_values().cloned().collect()
    }
}
