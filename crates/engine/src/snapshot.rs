//! The snapshot: an immutable, compiled configuration. A request uses the same snapshot from start to end.

use std::{
    any::Any,
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use foldhash::fast::RandomState;
use imbl::OrdMap;

use super::{
    attribute::{AttributeValue, Attributes, Bag, Reads, UsedSlots, Vocabulary},
    cache::{CacheCounts, CacheReason, CachedChecks, CheckCache, NamespaceCaching, OTHERS},
    dictionary::WORDS,
    handler::RuntimeHandler,
    policy::FailurePolicy,
    resource_counts::ResourceCounts,
    rules::{Rules, Table},
    shadow::kind::ShadowKind,
};

/// An immutable, compiled configuration.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) vocabulary: Arc<Vocabulary>,
    /// What it was compiled from, which the builder of the next snapshot knows.
    pub(crate) compiled: Arc<dyn Any + Send + Sync>,
    /// The slots of the words of the global dictionary; `None` for words that are not attributes.
    pub global_slots: Box<[Option<u32>]>,
    pub(crate) namespace_slots: NamespaceSlots,
    /// The attributes that rules read or set, also rules in the shadow.
    pub(crate) used: Arc<UsedSlots>,
    pub(crate) checks: Table,
    pub(crate) reports: Table,
    pub(crate) quotas: Table,
    pub(crate) generators: Table,
    pub(crate) handlers: Vec<Arc<RuntimeHandler>>,
    pub(crate) policy: FailurePolicy,
    /// The cache of check answers, if enabled.
    pub(crate) cache: Option<CheckCache>,
    /// The cache of the answers to strict requests, if enabled. Separate, because answers to other requests may ignore failures.
    pub(crate) strict_cache: Option<CheckCache>,
    /// The checks that the caches answer.
    pub(crate) cached_checks: CachedChecks,
    /// The namespaces whose checks the caches answer; `None` for all.
    pub(crate) cached: Option<HashSet<Box<str>, RandomState>>,
    /// The counters of the caches, shared by successive snapshots.
    pub(crate) cache_counts: Arc<CacheCounts>,
    /// The counters of rules, handlers and instances, shared by successive snapshots.
    pub(crate) resource_counts: Arc<ResourceCounts>,
    /// Whether parts of the configuration were omitted because of faults.
    pub(crate) has_faults: bool,
    /// The actions in the shadow, whose answers do not count; `None` if there are none.
    pub(crate) shadow: Option<Arc<Snapshot>>,
    /// The kind of shadow that it is evaluated in; `None` if its answers count.
    pub(crate) shadow_kind: Option<ShadowKind>,
    /// Where each rule is written, by full name.
    pub(crate) places: OrdMap<Arc<str>, Arc<RulePlace>>,
    /// The namespace whose rules apply to every request.
    pub(crate) default_namespace: Box<str>,
    /// Time at which it was built.
    pub(crate) built_at: Instant,
}

impl Snapshot {
    /// The declared attributes.
    pub fn vocabulary(&self) -> &Arc<Vocabulary> {
        &self.vocabulary
    }

    /// Creates an empty bag that holds only the attributes that this configuration uses, which suffice to answer a request.
    pub fn bag(&self) -> Bag {
        Bag::of_used(self.vocabulary.clone(), self.used.clone())
    }

    /// Creates an empty bag for a call. A logged call has all attributes.
    pub fn bag_of(&self, is_logged: bool) -> Bag {
        if is_logged { Bag::new(self.vocabulary.clone()) } else { self.bag() }
    }

    fn tables(&self) -> [&Table; 4] {
        [&self.checks, &self.reports, &self.quotas, &self.generators]
    }

    /// Returns whether equal rules have equal tables in another snapshot.
    pub(crate) fn shares_tables(&self, other: &Self) -> bool {
        let mut handlers = self.handlers.iter().zip(&other.handlers);
        self.handlers.len() == other.handlers.len()
            && handlers.all(|(own, other)| Arc::ptr_eq(own, other))
            && self.default_namespace == other.default_namespace
    }

    /// Shares the tables of another snapshot.
    pub(crate) fn share_tables(&mut self, other: &Self) {
        self.checks = other.checks.clone();
        self.reports = other.reports.clone();
        self.quotas = other.quotas.clone();
        self.generators = other.generators.clone();
    }

    /// Replaces the rules of a namespace in each table.
    pub(crate) fn set_rules(&mut self, namespace: &Arc<str>, rules: [Rules; 4]) {
        let tables = [&mut self.checks, &mut self.reports, &mut self.quotas, &mut self.generators];
        for (table, rules) in tables.into_iter().zip(rules) {
            if **namespace == *self.default_namespace {
                table.default = Arc::new(rules);
            } else if rules.destinations.is_empty() && rules.operations.is_empty() {
                table.by_namespace.remove(namespace);
            } else {
                table.by_namespace.insert(namespace.clone(), Arc::new(rules));
            }
        }
    }

    /// The actions in the shadow, whose answers do not count; `None` if there are none.
    pub fn shadow(&self) -> Option<&Arc<Snapshot>> {
        self.shadow.as_ref()
    }

    /// Returns the size and age.
    pub fn size(&self) -> SnapshotSize {
        SnapshotSize { rules: self.places.len(), handlers: self.handlers.len(), age: self.built_at.elapsed() }
    }

    /// The counters of the caches of check answers, shared by successive snapshots.
    pub fn cache_counts(&self) -> &CacheCounts {
        &self.cache_counts
    }

    /// The counters of rules, handlers and instances, shared by successive snapshots.
    pub fn resource_counts(&self) -> &ResourceCounts {
        &self.resource_counts
    }

    /// Returns where a rule is written: a file and a line, or the address of a server.
    pub fn place(&self, rule: &str) -> Option<&str> {
        Some(&self.places.get(rule)?.place)
    }

    /// Iterates over the full names and the places of all rules.
    pub fn rules(&self) -> impl Iterator<Item = (&str, &str)> {
        self.places.iter().map(|(rule, place)| (&**rule, &*place.place))
    }

    /// Returns the full names of the rules that call a handler.
    pub fn rules_of(&self, handler: &str) -> BTreeSet<&str> {
        let destinations = self.tables().into_iter().flat_map(Table::destinations);
        let of_handler = destinations.filter(|destination| &*destination.handler.name == handler);
        of_handler.flat_map(|destination| &destination.groups).map(|group| &*group.rule).collect()
    }

    /// Returns whether parts of the configuration were omitted because of faults.
    pub fn has_faults(&self) -> bool {
        self.has_faults
    }

    /// Returns whether answers to checks are cached.
    pub fn has_cache(&self) -> bool {
        self.caches().next().is_some()
    }

    /// Returns the size of the caches of check answers.
    pub fn cache_size(&self) -> CacheSize {
        let sizes = self.caches().map(CheckCache::size);
        sizes.fold(CacheSize::default(), |sum, (answers, bytes)| CacheSize {
            answers: sum.answers + answers,
            bytes: sum.bytes + bytes,
        })
    }

    /// Removes the cached answers.
    pub(crate) fn clear_caches(&self) {
        self.caches().for_each(CheckCache::clear);
    }

    fn caches(&self) -> impl Iterator<Item = &CheckCache> {
        self.cache.iter().chain(&self.strict_cache)
    }

    /// Creates a snapshot without rules.
    pub fn empty() -> Self {
        let vocabulary = Arc::new(Vocabulary::new());
        Self {
            namespace_slots: NamespaceSlots::of(&vocabulary),
            used: Arc::default(),
            global_slots: global_slots(&vocabulary),
            vocabulary,
            compiled: Arc::new(()),
            checks: Table::default(),
            reports: Table::default(),
            quotas: Table::default(),
            generators: Table::default(),
            handlers: Vec::new(),
            policy: FailurePolicy::default(),
            cache: None,
            strict_cache: None,
            cached_checks: CachedChecks::default(),
            cached: Some(HashSet::default()),
            cache_counts: Arc::default(),
            resource_counts: Arc::default(),
            has_faults: false,
            shadow: None,
            shadow_kind: None,
            places: OrdMap::new(),
            default_namespace: Box::default(),
            built_at: Instant::now(),
        }
    }

    /// Decides which checks the caches answer: all, if the rules that apply to every request cost enough.
    pub(crate) fn decide_caching(&mut self) {
        let cached = self
            .checked_namespaces()
            .into_iter()
            .filter(|namespace| self.cache_reason(namespace).is_cached());
        self.cached = (!self.cache_reason(OTHERS).is_cached()).then(|| cached.map(Box::from).collect());
    }

    /// Returns the namespaces with rules that a check evaluates.
    fn checked_namespaces(&self) -> BTreeSet<&str> {
        let tables = [&self.checks, &self.generators].into_iter();
        tables.flat_map(|table| table.by_namespace.keys().map(|name| &**name)).collect()
    }

    /// Returns why the checks of a namespace are cached, or not.
    fn cache_reason(&self, namespace: &str) -> CacheReason<'_> {
        if self.cached_checks == CachedChecks::All {
            return CacheReason::All;
        }
        // A generated attribute may also select another namespace.
        if self.generators.has_rules(namespace) {
            return CacheReason::Generators;
        }
        let (mut instances, mut conditions, mut stale) = (0, 0, None);
        for rules in self.checks.of(namespace) {
            if let Some(handler) = &rules.costly_handler {
                return CacheReason::Handler(handler);
            }
            stale = stale.or(rules.stale_rule.as_deref());
            instances += rules.entries;
            conditions += rules.conditions.len();
        }
        stale.map_or(CacheReason::Memory { instances, conditions }, CacheReason::Stale)
    }

    /// Returns for each namespace whether its checks are cached; first `*`, then at most `max` with rules in alphabetical order.
    pub fn cached_namespaces(&self, max: usize) -> Vec<NamespaceCaching> {
        let namespaces = std::iter::once(OTHERS).chain(self.checked_namespaces().into_iter().take(max));
        let caching = namespaces.map(|namespace| {
            let reason = self.cache_reason(namespace);
            NamespaceCaching {
                namespace: namespace.to_owned(),
                is_cached: reason.is_cached(),
                reason: reason.to_string(),
            }
        });
        caching.collect()
    }
}

/// Where a rule is written.
#[derive(Debug)]
pub(crate) struct RulePlace {
    /// A file and a line, or the address of a server.
    pub(crate) place: Box<str>,
    /// The namespace of the rule.
    pub(crate) namespace: Box<str>,
}

/// The size and age of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotSize {
    /// Number of rules with an effect.
    pub rules: usize,
    /// Number of handlers that these rules use.
    pub handlers: usize,
    /// Time since it was built.
    pub age: Duration,
}

/// The size of the caches of check answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheSize {
    /// Number of answers.
    pub answers: usize,
    /// Bytes of the answers and their keys.
    pub bytes: usize,
}

pub(crate) fn global_slots(vocabulary: &Vocabulary) -> Box<[Option<u32>]> {
    WORDS.iter().map(|word| vocabulary.find(word).map(|declared| declared.slot)).collect()
}

/// The slots of the attributes that determine the namespace of a request (docs/behaviour/dispatch.md#which-rules-apply).
#[derive(Debug)]
pub(crate) struct NamespaceSlots([Option<u32>; 3]);

impl NamespaceSlots {
    pub(crate) fn of(vocabulary: &Vocabulary) -> Self {
        let names = ["context.reporter.kind", "destination.namespace", "source.namespace"];
        Self(names.map(|name| vocabulary.find(name).map(|declared| declared.slot)))
    }

    /// Returns the namespace of a request. The attributes read for it are always referenced.
    pub(crate) fn namespace<'b>(&self, bag: &'b Bag, reads: &mut Reads) -> &'b str {
        let [reporter_kind, destination_namespace, source_namespace] = self.0;
        let slot = match read_text(bag, reporter_kind, reads).unwrap_or("inbound") {
            "inbound" => destination_namespace,
            "outbound" => source_namespace,
            _ => None,
        };
        read_text(bag, slot, reads).unwrap_or_default()
    }
}

fn read_text<'b>(bag: &'b Bag, slot: Option<u32>, reads: &mut Reads) -> Option<&'b str> {
    match Attributes::from(bag).read(slot?, reads) {
        Some(AttributeValue::String(text)) => Some(text),
        _ => None,
    }
}
