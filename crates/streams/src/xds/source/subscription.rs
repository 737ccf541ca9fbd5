use std::collections::{BTreeMap, BTreeSet};

use tonic::Status;

use super::name_set::{Name, NameSet};
use crate::stream::{source::entry::Entry, xdstp};

/// Subscribes to all resources.
const WILDCARD: &str = "*";
/// The maximum number of names in one subscription.
const NAMES: usize = 100_000;

/// The subscription of a client to a type (docs/behaviour/xds.md#rule-6-wildcards).
///
/// No names mean all resources until a name was given, as clients requested them before there was `*`. Afterwards they
/// mean none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Subscription {
    all: bool,
    names: NameSet,
    /// Whether names were given on this stream.
    named: bool,
    /// Whether no names always mean none, as for clients of gRPC.
    explicit: bool,
}

/// The resources that a client has to receive, whether they changed or not.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Owed {
    pub(super) all: bool,
    pub(super) names: NameSet,
}

impl Subscription {
    /// Creates an empty subscription of a client.
    pub(super) fn new(explicit: bool) -> Self {
        Self { explicit, ..Self::default() }
    }

    /// Returns whether all resources are subscribed.
    pub(super) fn is_wildcard(&self) -> bool {
        self.all
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.all || names(&self.names, name)
    }

    /// Returns whether a resource is subscribed by its name or an alias.
    pub(super) fn selects(&self, entry: &Entry) -> bool {
        self.contains(entry.name()) || entry.aliases.iter().any(|alias| self.contains(alias))
    }

    pub(super) fn names(&self) -> &NameSet {
        &self.names
    }

    /// Replaces the subscription, as a request of the state of the world does. Returns the newly subscribed names.
    pub(super) fn replace(&mut self, names: &[Name]) -> Result<Owed, Status> {
        bounded(names.len())?;
        let before = std::mem::take(self);
        let legacy = names.is_empty() && !before.named && !before.explicit;
        self.all = legacy || names.iter().any(is_wildcard);
        self.names = names.iter().filter(|name| !is_wildcard(name)).cloned().collect();
        self.named = before.named || !names.is_empty();
        self.explicit = before.explicit;
        Ok(Owed {
            all: self.all && !before.all,
            names: names
                .iter()
                .filter(|name| !is_wildcard(name) && !before.contains(&name.0))
                .cloned()
                .collect(),
        })
    }

    /// Adds the names of a delta request; in the `first` request of a type, no names may mean all resources. Returns
    /// the resources to send, even if sent before: a client that subscribes again has dropped them (rule 7).
    pub(super) fn add(&mut self, names: &[Name], first: bool) -> Result<Owed, Status> {
        let mut owed = Owed::default();
        let legacy = first && names.is_empty() && !self.explicit;
        if legacy || names.iter().any(is_wildcard) {
            (self.all, owed.all) = (true, true);
        }
        for name in names.iter().filter(|name| !is_wildcard(name)) {
            self.names.insert(name.clone());
            owed.names.insert(name.clone());
        }
        bounded(self.names.len())?;
        Ok(owed)
    }

    /// Unsubscribes from these names. With a wildcard subscription they stay subscribed, and are returned because their
    /// current state must be sent (rule 7). So do names of a subscribed collection.
    pub(super) fn remove(&mut self, names: &[Name]) -> NameSet {
        for name in names {
            self.names.remove(&name.0);
            self.all &= !is_wildcard(name);
        }
        let subscribed = names.iter().filter(|(name, _)| self.contains(name));
        subscribed.cloned().collect()
    }
}

impl Owed {
    /// Returns all subscribed resources.
    pub(super) fn all() -> Self {
        Self { all: true, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.all && self.names.is_empty()
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.all || names(&self.names, name)
    }

    /// Removes the names that the client has. It has a collection if it has a resource of it.
    pub(super) fn remove(&mut self, held: &BTreeMap<String, String>) {
        self.all &= held.is_empty();
        let collections: BTreeSet<String> = held.keys().filter_map(|name| xdstp::collection(name)).collect();
        self.names.retain(|name| !held.contains_key(name) && !collections.contains(name));
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.all |= other.all;
        self.names.extend(other.names);
    }
}

fn is_wildcard((name, _): &Name) -> bool {
    **name == *WILDCARD
}

/// Returns whether names contain this one, or its collection.
fn names(names: &NameSet, name: &str) -> bool {
    names.contains(name) || xdstp::collection(name).is_some_and(|collection| names.contains(&collection))
}

fn bounded(names: usize) -> Result<(), Status> {
    if names > NAMES {
        Err(Status::resource_exhausted(format!("at most {NAMES} names of a type are served by name")))
    } else {
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::xds::source::name_set::name_of;

    fn list(names: &str) -> Vec<Name> {
        names.split_whitespace().map(|name| name_of(name, None)).collect()
    }

    /// `*` and names, as they are written in the tables.
    fn text(all: bool, names: &NameSet) -> String {
        let mut texts = if all { vec!["*"] } else { vec![] };
        texts.extend(names.iter().map(|name| &**name));
        texts.join(" ")
    }

    fn owed(owed: &Owed) -> String {
        text(owed.all, &owed.names)
    }

    /// The names of each request, what is wanted after it, and what is new of that.
    #[test]
    fn rule_6_no_names_mean_everything_until_a_name_was_given() {
        let cases: [&[(&str, &str, &str)]; 7] = [
            &[("", "*", "*"), ("", "*", ""), ("a", "a", ""), ("", "", ""), ("*", "*", "*")],
            &[("*", "*", "*"), ("", "", ""), ("", "", "")],
            &[("* a", "* a", "* a"), ("* a b", "* a b", ""), ("* b", "* b", ""), ("b", "b", "")],
            &[("a b", "a b", "a b"), ("b a", "a b", ""), ("a b c", "a b c", "c"), ("c", "c", "")],
            &[("a", "a", "a"), ("", "", ""), ("a", "a", "a")],
            &[("a", "a", "a"), ("b *", "* b", "* b"), ("b", "b", "")],
            &[("a a", "a", "a")],
        ];
        for case in cases {
            let mut subscription = Subscription::default();
            for (names, wanted, new) in case {
                let got = subscription.replace(&list(names)).unwrap();
                assert_eq!(text(subscription.all, &subscription.names), *wanted, "{names:?} of {case:?}");
                assert_eq!(owed(&got), *new, "{names:?} of {case:?}");
            }
        }
    }

    #[test]
    fn rule_6_clients_of_grpc_mean_nothing_by_no_names() {
        let mut subscription = Subscription::new(true);
        assert_eq!(subscription.replace(&[]).unwrap(), Owed::default());
        assert!(!subscription.is_wildcard());
        assert_eq!(subscription.add(&[], true).unwrap(), Owed::default());
        assert!(!subscription.is_wildcard());
        assert!(subscription.replace(&list("*")).unwrap().all);
        assert!(subscription.replace(&[]).unwrap().is_empty() && !subscription.is_wildcard());
    }

    /// What is subscribed to and what not any more, what is wanted then, and what is sent for it.
    #[test]
    fn rule_7_subscribing_again_is_answered_again_and_unsubscribing_under_a_wildcard_too() {
        let cases: [&[(&str, &str, &str, &str)]; 6] = [
            &[("", "", "*", "*"), ("", "", "*", ""), ("a", "", "* a", "a"), ("", "*", "a", "")],
            &[("a", "", "a", "a"), ("", "", "a", ""), ("a b", "", "a b", "a b"), ("", "a", "b", "")],
            &[("* a", "", "* a", "* a"), ("", "a", "*", "a"), ("", "b", "*", "b"), ("*", "", "*", "*")],
            &[("a", "", "a", "a"), ("*", "", "* a", "*"), ("", "* a", "", "")],
            &[("", "*", "", "*")],
            &[("a", "a", "", "a")],
        ];
        for case in cases {
            let mut subscription = Subscription::default();
            for (index, (more, less, wanted, sent)) in case.iter().enumerate() {
                let mut got = subscription.add(&list(more), index == 0).unwrap();
                got.names.extend(subscription.remove(&list(less)));
                assert_eq!(
                    text(subscription.all, &subscription.names),
                    *wanted,
                    "{more:?} {less:?} of {case:?}"
                );
                assert_eq!(owed(&got), *sent, "{more:?} {less:?} of {case:?}");
            }
        }
    }

    #[test]
    fn a_subscription_has_a_limit() {
        let names: Vec<_> = (0..NAMES).map(|n| name_of(&n.to_string(), None)).collect();
        let mut subscription = Subscription::default();
        assert!(subscription.add(&names, true).is_ok());
        assert!(subscription.add(&names, false).is_ok(), "the same");
        let error = subscription.add(&list("another"), false).unwrap_err();
        assert_eq!(error.message(), "at most 100000 names of a type are served by name");
        let more = [names, list("another")].concat();
        assert!(Subscription::default().replace(&more).is_err());
    }
}
