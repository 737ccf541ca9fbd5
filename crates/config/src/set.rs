use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ptr,
    sync::Arc,
};

use imbl::{OrdMap, ordmap::DiffItem};

use crate::{
    change::{Change, Content},
    collection::Collection,
    evolution::Finding,
    name::{Kind, ResourceName},
    resource::Resource,
    resource_lint::lint_resource,
    resources::Resources,
    runtime,
    spec::Spec,
    validation_error::ValidationError,
};
use mixer_adapter_core::framework::suggest::suggest;

/// All known resources of Mixer's kinds by full name, with the layers of the runtime: the input of a snapshot.
///
/// A set is immutable: [`apply`](Self::apply) returns the next one, which shares the unchanged entries. A clone shares all of them.
#[derive(Clone, Debug, Default)]
pub struct ConfigSet {
    entries: OrdMap<ResourceName, Arc<Entry>>,
    /// The entries with faults or probable mistakes.
    notable: OrdMap<ResourceName, Arc<Entry>>,
    /// The resources of each collection, including collections that Mixer does not use.
    collections: BTreeMap<Collection, Resources>,
    /// The deprecated fields that layers of the runtime allow.
    allowed: BTreeSet<String>,
}

/// A resource with its interpreted spec. It equals itself only: sets share what did not change.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// The resource.
    pub resource: Arc<Resource>,
    /// The spec, or all reasons why it is invalid.
    pub spec: Result<Arc<Spec>, Vec<ValidationError>>,
    /// Fields and values that have another meaning in another version of the API.
    pub foreign: Arc<[Finding]>,
    /// Its probable mistakes.
    pub(crate) lints: Vec<ValidationError>,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self, other)
    }
}

impl Entry {
    /// Interprets the spec of a resource. An unchanged spec is shared with `before`.
    fn new(resource: Arc<Resource>, before: Option<&Self>) -> Self {
        let (spec, foreign) = match before {
            Some(Self { spec: Ok(spec), foreign, resource: old, .. })
                if old.spec == resource.spec && old.unknown == resource.unknown =>
            {
                (Ok(spec.clone()), foreign.clone())
            }
            _ => {
                let (spec, deprecated) = match Spec::read(&resource) {
                    Ok((spec, deprecated)) => (Ok(Arc::new(spec)), deprecated),
                    Err(faults) => (Err(faults), Vec::new()),
                };
                (spec, resource.unknown.iter().cloned().chain(deprecated).collect())
            }
        };
        let lints = lint_resource(&resource, spec.as_deref().ok(), &foreign);
        Self { resource, spec, foreign, lints }
    }

    /// The full name.
    pub fn name(&self) -> &ResourceName {
        &self.resource.name
    }

    /// Sets share most specs, which need not be compared.
    fn has_spec_of(&self, other: &Self) -> bool {
        let shares = matches!((&self.spec, &other.spec), (Ok(one), Ok(other)) if Arc::ptr_eq(one, other));
        shares || self.resource.spec == other.resource.spec
    }
}

impl ConfigSet {
    /// Creates a set of these resources alone, and returns their faults.
    pub fn of(resources: impl IntoIterator<Item = impl Into<Arc<Resource>>>) -> (Self, Vec<ValidationError>) {
        Self::default().apply(Change::full_sets(resources))
    }

    /// Returns the set after changes of different collections that belong together, and the faults of their resources, with the names
    /// that are repeated in any collection. Invalid resources are in the set with their faults; of duplicates, the first is used.
    pub fn apply(&self, changes: impl IntoIterator<Item = Change>) -> (Self, Vec<ValidationError>) {
        let mut next = self.clone();
        let mut faults = Vec::new();
        for Change { collection, content, .. } in changes {
            let added: Option<HashSet<ResourceName>> = match &content {
                Content::Full(_) => None,
                Content::Partial { added, .. } => {
                    Some(added.iter().map(|resource| resource.name.clone()).collect())
                }
            };
            let before = next.collections.remove(&collection).unwrap_or_default();
            let after = content.after(before.clone());
            if collection.role().is_some() {
                next.interpret(&before, &after);
                let is_included = |resource: &Resource| {
                    resource.collection == collection
                        && added.as_ref().is_none_or(|added| added.contains(&resource.name))
                };
                let mut invalid: Vec<_> =
                    next.notable().filter(|entry| is_included(&entry.resource)).collect();
                invalid.sort_by(|one, other| one.resource.origin.cmp(&other.resource.origin));
                faults
                    .extend(invalid.iter().filter_map(|entry| entry.spec.as_ref().err()).flatten().cloned());
            } else if collection.is_runtime() {
                next.allowed.clear();
                for layer in after.by_name().values() {
                    match runtime::allowed_deprecated(layer) {
                        Ok(allowed) => next.allowed.extend(allowed),
                        // Fields that the previous version allowed are no longer allowed, even if faults are ignored.
                        Err(fault) => faults.push(fault),
                    }
                }
            }
            next.collections.insert(collection, after);
        }
        let interpreted = next.collections.iter().filter(|(collection, _)| collection.role().is_some());
        let repeated = interpreted.flat_map(|(_, resources)| resources.repeated());
        faults.extend(repeated.map(|(resource, first)| {
            resource.error("", format!("is given twice; the first is at {}", first.origin))
        }));
        (next, faults)
    }

    /// Interprets the resources of a collection that changed.
    fn interpret(&mut self, before: &Resources, after: &Resources) {
        for item in before.by_name().diff(after.by_name()) {
            match item {
                DiffItem::Remove(name, _) => {
                    self.entries.remove(name);
                    self.notable.remove(name);
                }
                DiffItem::Add(name, resource) | DiffItem::Update { new: (name, resource), .. } => {
                    let entry = Arc::new(Entry::new(resource.clone(), self.get(name).map(Arc::as_ref)));
                    if entry.spec.is_ok() && entry.lints.is_empty() {
                        self.notable.remove(name);
                    } else {
                        self.notable.insert(name.clone(), entry.clone());
                    }
                    self.entries.insert(name.clone(), entry);
                }
            }
        }
    }

    /// Returns the full names of the deprecated fields and values that layers of the runtime allow.
    pub fn allowed_deprecated(&self) -> BTreeSet<String> {
        self.allowed.clone()
    }

    /// Returns the entries with faults or probable mistakes, in the order of their names.
    pub(crate) fn notable(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.notable.values()
    }

    /// Returns all entries, by kind in Mixer's processing order, then namespace, then name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.values()
    }

    /// Returns the entries that have that kind for Mixer, including legacy kinds, by namespace and name within a kind.
    pub fn of_role(&self, role: Kind) -> impl Iterator<Item = &Arc<Entry>> {
        // In the order of names, legacy kinds are behind Mixer's own.
        let [own, legacy] = [role.clone(), Kind::from("")].map(|kind| ResourceName::new("", kind, ""));
        let kind = role.clone();
        let own = self.entries.range(own..).take_while(move |(name, _)| *name.kind() == kind);
        let all = own.chain(self.entries.range(legacy..)).map(|(_, entry)| entry);
        all.filter(move |entry| entry.resource.role().as_ref() == Some(&role))
    }

    /// Returns the entry of that full name.
    pub fn get(&self, name: &ResourceName) -> Option<&Arc<Entry>> {
        self.entries.get(name)
    }

    /// Resolves a reference to a resource of that kind from a namespace (docs/behaviour/configuration.md#references).
    pub fn resolve(
        &self,
        kind: &Kind,
        reference: &str,
        namespace: &str,
    ) -> Result<&Arc<Entry>, ResolveError> {
        let candidates = ResourceName::candidates(reference, kind, namespace);
        match candidates
            .iter()
            .find_map(|name| self.get(name).filter(|entry| entry.resource.role().as_ref() == Some(kind)))
        {
            Some(entry) => Ok(entry),
            None => Err(self.unresolved(kind, reference, namespace, &candidates)),
        }
    }

    fn unresolved(
        &self,
        kind: &Kind,
        reference: &str,
        namespace: &str,
        tried: &[ResourceName],
    ) -> ResolveError {
        let mut reason = format!("there is no {kind} {reference}");
        let tried: Vec<_> = tried.iter().map(ToString::to_string).collect();
        if tried != [reference] {
            reason.push_str(&format!(" (looked for {})", tried.join(", then ")));
        }
        let short = reference.split('.').next().unwrap_or_default();
        let names: Vec<_> = self.of_role(kind.clone()).map(|entry| entry.name()).collect();
        let is_known = names.iter().any(|name| name.name() == short);
        let meant = if is_known { Some(short) } else { suggest(short, names.iter().map(|name| name.name())) };
        if let Some(name) = names.iter().find(|name| Some(name.name()) == meant) {
            reason.push_str(&format!("; write {} if {name} is meant", name.reference_from(namespace)));
        }
        ResolveError(reason)
    }

    /// Iterates over the entries that differ from an earlier set, by name: the one before, and the one now.
    fn differences<'a>(
        &'a self,
        earlier: &'a Self,
    ) -> impl Iterator<Item = (Option<&'a Arc<Entry>>, Option<&'a Arc<Entry>>)> {
        earlier.entries.diff(&self.entries).map(|item| match item {
            DiffItem::Add(_, now) => (None, Some(now)),
            DiffItem::Update { old: (_, before), new: (_, now) } => (Some(before), Some(now)),
            DiffItem::Remove(_, before) => (Some(before), None),
        })
    }

    /// Iterates over the names whose entries differ from an earlier set.
    pub fn names_since<'a>(&'a self, earlier: &'a Self) -> impl Iterator<Item = &'a ResourceName> {
        self.differences(earlier).filter_map(|(before, now)| Some(now.or(before)?.name()))
    }

    /// Iterates over the differences from an earlier set: `changed NAME (PLACE)` and the like.
    pub fn changes_since<'a>(&'a self, earlier: &'a Self) -> impl Iterator<Item = String> + 'a {
        let different = self.differences(earlier).filter_map(|(before, now)| {
            let entry = now?;
            let verb = match before {
                Some(before) if entry.has_spec_of(before) => return None,
                Some(_) => "changed",
                None => "added",
            };
            Some(format!("{verb} {} ({})", entry.name(), entry.resource.origin))
        });
        let removed = self.differences(earlier).filter(|(_, now)| now.is_none());
        different.chain(removed.filter_map(|(before, _)| Some(format!("removed {}", before?.name()))))
    }

    /// Iterates over the fields that differ from an earlier set, the first of each resource: `FIELD of NAME (PLACE): BEFORE -> AFTER`.
    pub fn changed_fields<'a>(&'a self, earlier: &'a Self) -> impl Iterator<Item = String> + 'a {
        let changed = self.differences(earlier).filter_map(|(before, now)| {
            let (before, entry) = (before?, now?);
            (!entry.has_spec_of(before)).then(|| entry.resource.changed_fields(&before.resource))
        });
        changed.flatten()
    }

    /// Returns the number of resources of each collection, including collections that Mixer does not use.
    pub fn counts(&self) -> BTreeMap<Collection, usize> {
        let counts = self
            .collections
            .iter()
            .map(|(collection, resources)| (collection.clone(), resources.by_name().len()));
        counts.filter(|(collection, count)| *count > 0 || collection.role().is_none()).collect()
    }
}

/// A reference without a resource: its text has the names that were tried, and a suggestion.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ResolveError(String);

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn resources(text: &str) -> Vec<Arc<Resource>> {
        let parsed = parse(text, "x.yaml", "ns");
        assert_eq!(parsed.faults, []);
        parsed.resources
    }

    fn of(text: &str) -> ConfigSet {
        let (set, faults) = ConfigSet::of(resources(text));
        assert_eq!(faults, []);
        set
    }

    fn rule(name: &str, condition: &str) -> String {
        format!("---\nkind: rule\nmetadata: {{name: {name}}}\nspec: {{match: {condition}}}\n")
    }

    fn handler(name: &str, namespace: &str) -> String {
        let metadata = format!("metadata: {{name: {name}, namespace: {namespace}}}");
        format!("---\nkind: handler\n{metadata}\nspec: {{compiledAdapter: denier}}\n")
    }

    fn names(set: &ConfigSet) -> Vec<String> {
        set.iter().map(|entry| entry.name().to_string()).collect()
    }

    #[test]
    fn entries_are_in_the_order_mixer_processes_kinds_in_whatever_the_order_of_the_text() {
        let set = of(&[rule("b", "a"), rule("a", "b"), handler("z", "ns"), handler("z", "a")].concat());
        assert_eq!(names(&set), ["z.handler.a", "z.handler.ns", "a.rule.ns", "b.rule.ns"]);
    }

    #[test]
    fn a_full_change_replaces_its_collection_and_no_other() {
        let before = of(&[rule("a", "x"), rule("b", "x"), handler("h", "ns")].concat());
        let rules = Collection::of("", &Kind::Rule);
        let all = resources(&rule("b", "x")).into_iter().collect();
        let (after, faults) = before.apply([Change::new(rules, Content::Full(all))]);
        assert_eq!(faults, []);
        assert_eq!(names(&after), ["h.handler.ns", "b.rule.ns"]);
        assert_eq!(names(&before).len(), 3, "the old set stays as it was");
    }

    #[test]
    fn a_partial_change_adds_replaces_and_removes() {
        let before = of(&[rule("a", "x"), rule("b", "x")].concat());
        let content = Content::Partial {
            added: resources(&[rule("b", "z"), rule("c", "x")].concat()),
            removed: ["a", "never-there"].map(|name| ResourceName::new(name, Kind::Rule, "ns")).into(),
        };
        let (after, _) = before.apply([Change::new(Collection::of("", &Kind::Rule), content)]);
        let read: Vec<_> = after
            .iter()
            .map(|entry| match entry.spec.as_deref() {
                Ok(Spec::Rule(rule)) => (entry.name().name(), rule.r#match.as_str()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(read, [("b", "z"), ("c", "x")]);
    }

    #[test]
    fn what_did_not_change_is_shared_and_what_moved_shares_its_spec() {
        let before = of(&[rule("a", "x"), rule("b", "x"), rule("c", "x")].concat());
        let text = [rule("a", "x"), "# moves the rest\n".to_owned(), rule("b", "x"), rule("c", "z")].concat();
        let (after, _) = before.apply(Change::full_sets(resources(&text)));
        let pairs: Vec<_> = before.iter().zip(after.iter()).collect();
        assert!(Arc::ptr_eq(pairs[0].0, pairs[0].1));
        assert_ne!(pairs[1].0.resource.origin, pairs[1].1.resource.origin);
        assert!(Arc::ptr_eq(pairs[1].0.spec.as_ref().unwrap(), pairs[1].1.spec.as_ref().unwrap()));
        assert_ne!(pairs[2].0.spec, pairs[2].1.spec);
    }

    #[test]
    fn an_annotation_is_a_change() {
        let [plain, annotated] = ["{name: r}", "{name: r, annotations: {policy.istio.io/lang: CEL}}"]
            .map(|metadata| format!("kind: rule\nmetadata: {metadata}\nspec: {{match: x}}"));
        let before = of(&plain);
        let (after, _) = before.apply(Change::full_sets(resources(&annotated)));
        let annotations = &after.iter().next().unwrap().resource.annotations;
        assert_eq!(annotations.get("policy.istio.io/lang").map(String::as_str), Some("CEL"));
    }

    #[test]
    fn a_name_given_twice_is_an_error_that_names_both_places_and_the_first_stays() {
        let (set, faults) = ConfigSet::of(resources(&[rule("a", "first"), rule("a", "second")].concat()));
        let faults: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(faults, ["x.yaml:6: a.rule.ns: is given twice; the first is at x.yaml:2"]);
        assert!(
            matches!(set.iter().next().unwrap().spec.as_deref(), Ok(Spec::Rule(rule)) if rule.r#match == "first")
        );
    }

    #[test]
    fn a_name_given_twice_is_an_error_of_all_sets_until_it_is_given_once() {
        let (twice, given_twice) =
            ConfigSet::of(resources(&[rule("a", "first"), rule("a", "second")].concat()));
        let partial = |kind, added: &str, removed| {
            let content = Content::Partial { added: resources(added), removed };
            Change::new(Collection::of("", &kind), content)
        };
        let (more, faults) = twice.apply([partial(Kind::Handler, &handler("h", "ns"), Vec::new())]);
        assert_eq!(faults, given_twice);
        let removed = vec![ResourceName::new("a", Kind::Rule, "ns")];
        let (_, faults) = more.apply([partial(Kind::Rule, &rule("b", "x"), removed)]);
        assert_eq!(faults, []);
    }

    #[test]
    fn what_cannot_be_understood_is_in_the_set_with_the_reason_and_again_in_the_faults_of_the_next_full_change()
     {
        let text = "kind: rule\nmetadata: {name: a}\nspec: {mach: x}";
        let (set, faults) = ConfigSet::of(resources(text));
        assert_eq!(faults.len(), 1);
        assert_eq!(set.iter().next().unwrap().spec, Err(faults.clone()));
        assert_eq!(set.apply(Change::full_sets(resources(text))).1, faults);
    }

    #[test]
    fn what_is_nothing_to_mixer_is_counted() {
        let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: a}\n";
        let set = of(&[rule("a", "x"), service.to_owned()].concat());
        assert_eq!(names(&set), ["a.rule.ns"]);
        let counts: Vec<_> = set.counts().iter().map(|(name, count)| format!("{name} {count}")).collect();
        assert_eq!(counts, ["istio/policy/v1beta1/rules 1", "k8s/v1/Service 1"]);
    }

    #[test]
    fn references_resolve_in_all_four_forms() {
        let set = of(&[handler("h", "ns"), handler("h", "other")].concat());
        let resolve =
            |reference| set.resolve(&Kind::Handler, reference, "ns").map(|entry| entry.name().to_string());
        assert_eq!(resolve("h").as_deref(), Ok("h.handler.ns"));
        assert_eq!(resolve("h.handler").as_deref(), Ok("h.handler.ns"));
        assert_eq!(resolve("h.other").as_deref(), Ok("h.handler.other"));
        assert_eq!(resolve("h.handler.other").as_deref(), Ok("h.handler.other"));
    }

    #[test]
    fn a_reference_is_not_resolved_to_a_resource_of_another_kind() {
        let set = of(&[handler("h", "ns"), rule("r", "x")].concat());
        assert!(set.resolve(&Kind::Handler, "r.rule.ns", "ns").is_err());
        assert!(set.resolve(&Kind::Rule, "h.handler", "ns").is_err());
    }

    #[test]
    fn legacy_kinds_are_found_by_a_name_with_their_kind() {
        let set = of("kind: denier\nmetadata: {name: deny}\nspec: {status: {code: 7}}");
        assert!(set.resolve(&Kind::Handler, "deny.denier", "ns").is_ok());
        assert!(set.resolve(&Kind::Handler, "deny", "ns").is_err());
    }

    #[test]
    fn a_reference_without_resource_says_what_was_looked_for_and_probably_meant() {
        let set = of(&[handler("deny", "istio-system"), handler("local", "ns")].concat());
        let resolve = |reference| set.resolve(&Kind::Handler, reference, "ns").unwrap_err().to_string();
        assert_eq!(
            resolve("deny"),
            "there is no handler deny (looked for deny.handler.ns); write deny.istio-system if deny.handler.istio-system is meant"
        );
        assert_eq!(
            resolve("lokal"),
            "there is no handler lokal (looked for lokal.handler.ns); write local if local.handler.ns is meant"
        );
        assert_eq!(resolve("quota.handler.ns"), "there is no handler quota.handler.ns");
        assert_eq!(resolve("x.y"), "there is no handler x.y (looked for x.y.ns, then x.handler.y)");
    }
}
