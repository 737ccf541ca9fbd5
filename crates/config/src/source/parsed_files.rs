use std::{
    collections::BTreeMap,
    mem::take,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::files::{FileFormat, list, read_document};
use crate::{
    change::{Change, Content},
    collection::Collection,
    parse::{Edits, ParsedText},
    parsed::Parsed,
    resource::Resource,
    resources::Resources,
    validation_error::ValidationError,
};

/// The maximum number of resources.
const MAX_RESOURCES: usize = 1_000_000;

/// Reads the files of a directory and its subdirectories in the order of their names, or one file of any name.
///
/// The files are `*.yaml`, `*.yml`, `*.json` and the files in `formats`. A file that cannot be read is a
/// fault, and does not affect others.
///
/// Names that begin with a dot are ignored, and so are tests, `*.test.yaml`. Therefore a mounted ConfigMap, whose files
/// are links into `..data`, is read once.
pub fn read(root: &Path, default_namespace: &str, formats: &[FileFormat]) -> Parsed {
    let (faults, edits) = ParsedFiles::new([]).replace(root, default_namespace, formats);
    Parsed { resources: edits.new, faults }
}

/// The files that were read last, with their resources.
#[derive(Debug)]
pub(super) struct ParsedFiles {
    texts: BTreeMap<PathBuf, ParsedText>,
    /// Including collections that have become empty.
    collections: BTreeMap<Collection, Collected>,
}

/// The resources of a collection, and the sum of their digests.
#[derive(Debug, Default)]
struct Collected {
    resources: Resources,
    digests: u64,
}

impl ParsedFiles {
    /// Creates collections without resources.
    pub(super) fn new(collections: impl IntoIterator<Item = Collection>) -> Self {
        let collections = collections.into_iter().map(|collection| (collection, Collected::default()));
        Self { texts: BTreeMap::new(), collections: collections.collect() }
    }

    /// Reads files as [`read`] does, and returns the faults. Parts that are unchanged since they were read before are not parsed again.
    pub(super) fn read_again(
        &mut self,
        root: &Path,
        default_namespace: &str,
        formats: &[FileFormat],
    ) -> Vec<ValidationError> {
        let (faults, edits) = self.replace(root, default_namespace, formats);
        self.collect(edits);
        faults
    }

    /// Iterates over all collections.
    pub(super) fn collections(&self) -> impl Iterator<Item = &Collection> {
        self.collections.keys()
    }

    /// Returns full changes of all collections.
    pub(super) fn changes(&self) -> Vec<Change> {
        let changes = self.collections.iter().map(|(collection, Collected { resources, digests })| {
            Change::of_digests(collection.clone(), *digests, Content::Full(resources.clone()))
        });
        changes.collect()
    }

    /// Reads the texts again; returns their faults, and the resources that differ.
    fn replace(
        &mut self,
        root: &Path,
        default_namespace: &str,
        formats: &[FileFormat],
    ) -> (Vec<ValidationError>, Edits) {
        let (paths, mut faults) = list(root, formats);
        let mut former = take(&mut self.texts);
        let mut edits = Edits::default();
        let mut count = 0;
        for path in paths {
            let source = path.display().to_string();
            let document = match read_document(&path, formats) {
                Ok(document) => document,
                Err(error) => {
                    faults.push(ValidationError::error(error.to_string()).at(&source.into(), 0));
                    continue;
                }
            };
            let mut text = former.remove(&path).unwrap_or_default();
            let known = edits.new.len();
            let failure = text.replace(document, &source, default_namespace, &mut edits).err();
            count += text.resources().count();
            if count > MAX_RESOURCES {
                let reason =
                    format!("more than {MAX_RESOURCES} resources; {source} and later files are not read");
                faults.push(ValidationError::error(reason).at(&root.display().to_string().into(), 0));
                edits.new.truncate(known);
                former.insert(path, text);
                break;
            }
            faults.extend(text.faults().cloned().chain(failure));
            self.texts.insert(path, text);
        }
        edits.gone.extend(former.values().flat_map(ParsedText::resources).cloned());
        (faults, edits)
    }

    /// Applies the differences of texts to the collections.
    fn collect(&mut self, edits: Edits) {
        if !self.has_repeated() {
            for gone in edits.gone {
                if let Some(collected) = self.collections.get_mut(&gone.collection) {
                    collected.remove(&gone);
                }
            }
            edits.new.into_iter().for_each(|new| self.add(new));
            if !self.has_repeated() {
                return;
            }
        }
        // The order of the texts decides which resource of a name is the first.
        self.collections.values_mut().for_each(|collected| *collected = Collected::default());
        let all: Vec<_> = self.texts.values().flat_map(ParsedText::resources).cloned().collect();
        all.into_iter().for_each(|resource| self.add(resource));
    }

    fn has_repeated(&self) -> bool {
        self.collections.values().any(|collected| collected.resources.repeated().next().is_some())
    }

    fn add(&mut self, resource: Arc<Resource>) {
        let collected = self.collections.entry(resource.collection.clone()).or_default();
        collected.digests = collected.digests.wrapping_add(resource.digest().bits());
        collected.resources.insert(resource);
    }
}

impl Collected {
    /// Removes a resource. Resources beyond the limit were never added.
    fn remove(&mut self, gone: &Arc<Resource>) {
        let known = self.resources.by_name().get(&gone.name);
        if known.is_some_and(|known| Arc::ptr_eq(known, gone)) {
            self.digests = self.digests.wrapping_sub(gone.digest().bits());
            self.resources.remove([&gone.name]);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::set::ConfigSet;

    /// Documents; some have the names of others, are faulty, or add a line.
    const DOCUMENTS: [&str; 10] = [
        "kind: rule\nmetadata: {name: a}\nspec: {match: \"true\"}\n",
        "kind: rule\nmetadata: {name: a}\nspec: {match: \"false\"}\n",
        "kind: rule\nmetadata: {name: a, namespace: shop}\nspec: {match: \"true\"}\n",
        "kind: rule\nmetadata: {name: b}\nspec: {mach: \"true\"}\n",
        "kind: handler\nmetadata: {name: h}\nspec: {compiledAdapter: denier}\n",
        "kind: denier\nmetadata: {name: h}\nspec: {status: {code: 7}}\n",
        "kind: instance\nmetadata: {name: i}\nspec: {compiledTemplate: checknothing, params: {}}\n# a line\n",
        "kind: RuleList\nitems: [{kind: rule, metadata: {name: c}}, {kind: rule, metadata: {name: d}}]\n\n",
        "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n",
        "kind: [\n\n",
    ];

    const FILES: [&str; 3] = ["a.yaml", "a/b.yaml", "c.yaml"];

    fn write(directory: &Path, file: &str, documents: &[usize]) {
        let path = directory.join(file);
        let texts: Vec<&str> = documents.iter().map(|document| DOCUMENTS[*document]).collect();
        if texts.is_empty() {
            let _ = fs::remove_file(path);
        } else {
            fs::write(path, texts.join("---\n")).unwrap();
        }
    }

    proptest! {
        /// Each edit replaces some documents of a file by others: they are changed, moved, removed or duplicated.
        #[test]
        fn files_that_are_read_again_are_like_files_that_are_read_for_the_first_time(
            first in vec(vec(0..DOCUMENTS.len(), 0..6), FILES.len()),
            edits in vec((0..FILES.len(), 0..6_usize, 0..3_usize, vec(0..DOCUMENTS.len(), 0..3)), 0..5),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let root = directory.path();
            fs::create_dir(root.join("a")).unwrap();
            let mut files = first;
            FILES.iter().zip(&files).for_each(|(file, documents)| write(root, file, documents));
            let mut read_files = ParsedFiles::new(Collection::mixer());
            let mut set = ConfigSet::default();
            for (file, start, removed, added) in [(0, 0, 0, Vec::new())].into_iter().chain(edits) {
                let start = start.min(files[file].len());
                let end = (start + removed).min(files[file].len());
                drop(files[file].splice(start..end, added));
                write(root, FILES[file], &files[file]);
                let faults = read_files.read_again(root, "ns", &[]);
                let fresh = read(root, "ns", &[]);
                prop_assert_eq!(faults, fresh.faults);
                let is_empty = |change: &Change| change.content.count() == 0;
                let changes = read_files.changes();
                let fresh_changes = Change::full_sets(fresh.resources.clone());
                prop_assert!(
                    changes.iter().filter(|change| !is_empty(change))
                        .eq(fresh_changes.iter().filter(|change| !is_empty(change)))
                );
                let (next, faults) = set.apply(changes);
                let (alone, fresh_faults) = ConfigSet::of(fresh.resources);
                prop_assert_eq!(faults, fresh_faults);
                let resources = |set: &ConfigSet| {
                    set.iter().map(|entry| (entry.resource.clone(), entry.spec.clone(), entry.lints.clone())).collect::<Vec<_>>()
                };
                prop_assert_eq!(resources(&next), resources(&alone));
                let notable = |set: &ConfigSet| set.notable().map(|entry| entry.name().clone()).collect::<Vec<_>>();
                prop_assert_eq!(notable(&next), notable(&alone));
                set = next;
            }
        }
    }

    #[test]
    fn resources_of_unchanged_documents_are_shared_with_the_changes_before() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let mut files = ParsedFiles::new(Collection::mixer());
        let mut changes = |documents: &[usize]| {
            write(root, "a.yaml", documents);
            assert_eq!(files.read_again(root, "ns", &[]), []);
            files.changes()
        };
        let (before, after) = (changes(&[0, 2, 4]), changes(&[1, 2, 4]));
        let differing = before.iter().zip(&after).filter(|(before, after)| before != after);
        let collections: Vec<_> = differing.map(|(before, _)| before.collection.as_str()).collect();
        assert_eq!(collections, ["istio/policy/v1beta1/rules"]);
        let resources = |changes: &[Change]| -> Vec<Arc<Resource>> {
            changes.iter().flat_map(|change| change.content.resources()).cloned().collect()
        };
        let shared: Vec<bool> = resources(&before)
            .iter()
            .zip(resources(&after))
            .map(|(one, other)| Arc::ptr_eq(one, &other))
            .collect();
        assert_eq!(shared, [true, false, true], "the handler, and two rules by namespace");
    }
}
