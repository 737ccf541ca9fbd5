//! A snapshot: one consistent set of configuration, compiled. A request sees one from start to end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{
    attribute::{AttributeValue, Attributes, Bag, Reads, Vocabulary},
    cache::CheckCache,
    dictionary::WORDS,
    dispatch::FailurePolicy,
    handler::RuntimeHandler,
    rules::Table,
};

/// Everything a request needs, immutable.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) vocabulary: Arc<Vocabulary>,
    /// The slot of each word of the global dictionary that is an attribute.
    pub global_slots: Box<[Option<u32>]>,
    pub(crate) identity: Identity,
    pub(crate) checks: Table,
    pub(crate) reports: Table,
    pub(crate) quotas: Table,
    pub(crate) generators: Table,
    pub(crate) handlers: Vec<Arc<RuntimeHandler>>,
    pub(crate) policy: FailurePolicy,
    /// Answers of checks, if they are kept.
    pub(crate) cache: Option<CheckCache>,
    /// Whether parts of the configuration were left out because of faults.
    pub(crate) has_faults: bool,
    /// How many rules there are.
    pub(crate) rules: usize,
    /// When it was built.
    pub(crate) since: Instant,
}

impl Snapshot {
    /// The attributes that exist.
    pub fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.vocabulary
    }

    /// How much there is, and since when.
    pub fn size(&self) -> SnapshotSize {
        SnapshotSize { rules: self.rules, handlers: self.handlers.len(), age: self.since.elapsed() }
    }

    /// A snapshot without any rule.
    pub fn empty() -> Self {
        let vocabulary = Arc::new(Vocabulary::new());
        Self {
            identity: Identity::of(&vocabulary),
            global_slots: global_slots(&vocabulary),
            vocabulary,
            checks: Table::default(),
            reports: Table::default(),
            quotas: Table::default(),
            generators: Table::default(),
            handlers: Vec::new(),
            policy: FailurePolicy::default(),
            cache: None,
            has_faults: false,
            rules: 0,
            since: Instant::now(),
        }
    }
}

/// How much is in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotSize {
    /// How many rules do something.
    pub rules: usize,
    /// How many handlers these rules lead to.
    pub handlers: usize,
    /// How long ago it was built.
    pub age: Duration,
}

pub(crate) fn global_slots(vocabulary: &Vocabulary) -> Box<[Option<u32>]> {
    WORDS.iter().map(|word| vocabulary.find(word).map(|declared| declared.slot)).collect()
}

/// The attributes that tell which namespace's rules apply (docs/behaviour/dispatch.md#which-rules-apply).
#[derive(Debug)]
pub(crate) struct Identity {
    reporter_kind: Option<u32>,
    destination_namespace: Option<u32>,
    source_namespace: Option<u32>,
}

impl Identity {
    pub(crate) fn of(vocabulary: &Vocabulary) -> Self {
        let slot = |name| vocabulary.find(name).map(|declared| declared.slot);
        Self {
            reporter_kind: slot("context.reporter.kind"),
            destination_namespace: slot("destination.namespace"),
            source_namespace: slot("source.namespace"),
        }
    }

    /// The namespace of a request. What is read for it is always among the referenced attributes.
    pub(crate) fn namespace<'b>(&self, bag: &'b Bag, reads: &mut Reads) -> &'b str {
        let mut read = |slot: Option<u32>| match Attributes::from(bag).read(slot?, reads) {
            Some(AttributeValue::String(text)) => Some(&**text),
            _ => None,
        };
        let slot = match read(self.reporter_kind).unwrap_or("inbound") {
            "inbound" => self.destination_namespace,
            "outbound" => self.source_namespace,
            _ => None,
        };
        read(slot).unwrap_or_default()
    }
}
