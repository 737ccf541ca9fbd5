//! `watch --write`: the state of a server as files.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde_json::Value as Json;

use super::output_args::DataFormat;
use mixer_adapter_config::Collection;
use mixer_adapter_streams::stream::{RawChange, RawResource};

/// A directory with a file for each collection.
pub(super) struct StateFiles {
    directory: PathBuf,
    /// The documents of each collection, by the names of the resources.
    collections: BTreeMap<String, BTreeMap<String, Json>>,
}

impl StateFiles {
    /// Opens an empty or new directory: other files would add resources that the server does not have.
    pub(super) fn open(directory: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(directory)
            .and_then(|()| fs::read_dir(directory))
            .with_context(|| format!("--write: cannot use {}", directory.display()))
            .and_then(|mut files| {
                anyhow::ensure!(
                    files.next().is_none(),
                    "--write: {} is not empty; name a new directory",
                    directory.display()
                );
                Ok(())
            })?;
        Ok(Self { directory: directory.to_owned(), collections: BTreeMap::new() })
    }

    /// Writes the collection of a change anew.
    pub(super) fn apply(&mut self, change: &RawChange) -> anyhow::Result<()> {
        let collection = Collection::new(&change.collection);
        let documents = self.collections.entry(collection.as_str().to_owned()).or_default();
        if change.full {
            documents.clear();
        }
        for name in &change.removed {
            documents.remove(name);
        }
        for resource in &change.resources {
            match document(resource, &collection) {
                Ok(document) => _ = documents.insert(resource.name.clone(), document),
                Err(error) => {
                    documents.remove(&resource.name);
                    tracing::warn!(%collection, name = %resource.name, "resource not written: {error}");
                }
            }
        }
        let encoded: anyhow::Result<String> =
            documents.values().map(|document| DataFormat::Yaml.encode_one_of_many(document)).collect();
        let path = self.directory.join(file_name(&collection));
        write(&path, &encoded?).with_context(|| format!("--write: cannot write {}", path.display()))
    }
}

fn document(resource: &RawResource, collection: &Collection) -> anyhow::Result<Json> {
    resource.document(collection)?.context("files have no kind for this collection")
}

/// Replaces a file as a whole, so that no reader sees a part of it.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let unfinished = path.with_extension("unfinished");
    fs::write(&unfinished, text)?;
    fs::rename(&unfinished, path)
}

/// The name of a collection in plain characters, such as `istio_policy_v1beta1_rules.yaml`.
fn file_name(collection: &Collection) -> String {
    collection
        .as_str()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-.".contains(c) { c } else { '_' })
        .collect::<String>()
        .trim_start_matches('.')
        .to_owned()
        + ".yaml"
}
