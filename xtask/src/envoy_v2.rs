//! The messages of Envoy's API v2, and the messages of v3 that they became.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use prost::Message as _;
use prost_reflect::{DescriptorPool, Value};
use prost_types::{FileDescriptorProto, FileDescriptorSet};

/// The option of a message of v3 that names its predecessor.
const VERSIONING: &str = "udpa.annotations.versioning";
/// Where the protos and what they import are in the sources of the crate data-plane-api.
const INCLUDES: [&str; 7] = [
    "data-plane-api",
    "googleapis",
    "protoc-gen-validate",
    "xds",
    "opencensus-proto/src",
    "opentelemetry-proto",
    "client_model",
];

/// An encoded `FileDescriptorSet` with the messages of v2 that have a successor, and a table of both: a line for each, `V2<TAB>V3`.
///
/// # Errors
///
/// The protos cannot be compiled, or `v3` is not an encoded `FileDescriptorSet`.
pub(crate) fn facts(sources: &Path, v3: &[u8]) -> Result<(Vec<u8>, String)> {
    let mut protos = Vec::new();
    collect(&sources.join("data-plane-api/envoy"), &mut protos)?;
    let includes: Vec<PathBuf> = INCLUDES.iter().map(|include| sources.join(include)).collect();
    let all = protox::compile(protos, includes)?;
    let successors = successors(v3)?;
    let files: BTreeMap<&str, &FileDescriptorProto> =
        all.file.iter().map(|file| (file.name(), file)).collect();
    let mut needed = BTreeSet::new();
    let mut table = String::new();
    for file in files.values() {
        // Services and what Envoy reports are not configuration, but for the layers of the runtime.
        let others = ["envoy/service/", "envoy/data/", "envoy/admin/", "envoy/config/bootstrap/"];
        if others.iter().any(|other| file.name().starts_with(other)) && !file.name().ends_with("/rtds.proto")
        {
            continue;
        }
        for message in &file.message_type {
            let name = format!("{}.{}", file.package(), message.name());
            if let Some(successor) = successors.get(&name) {
                table.push_str(&format!("{name}\t{successor}\n"));
                require(file.name(), &files, &mut needed);
            }
        }
    }
    let mut lines: Vec<&str> = table.lines().collect();
    lines.sort_unstable();
    let table = lines.join("\n") + "\n";
    let set = FileDescriptorSet {
        file: needed.iter().filter_map(|name| files.get(name.as_str())).map(|file| (*file).clone()).collect(),
    };
    Ok((set.encode_to_vec(), table))
}

/// The messages of v2 and what they became, by the options of v3.
fn successors(v3: &[u8]) -> Result<BTreeMap<String, String>> {
    let pool = DescriptorPool::decode(v3)?;
    let extension =
        pool.get_extension_by_name(VERSIONING).context("the descriptors have no option versioning")?;
    let previous = |message: &prost_reflect::MessageDescriptor| {
        let options = message.options();
        let Value::Message(versioning) = options.get_extension(&extension).into_owned() else { return None };
        let previous = versioning.get_field_by_name("previous_message_type")?.as_str()?.to_owned();
        // An option names a message of v3 that never existed, in place of the one of v2.
        Some(previous.replace(".v3.", ".v2.")).filter(|previous| !previous.is_empty())
    };
    Ok(pool
        .all_messages()
        .filter_map(|message| Some((previous(&message)?, message.full_name().to_owned())))
        .collect())
}

/// Adds the protos of a folder that are not of v3.
fn collect(folder: &Path, protos: &mut Vec<PathBuf>) -> Result<()> {
    for entry in folder.read_dir().with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let is_v3 =
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("v3"));
        if path.is_dir() && !is_v3 {
            collect(&path, protos)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            protos.push(path);
        }
    }
    Ok(())
}

/// Adds a file and what it imports.
fn require(name: &str, files: &BTreeMap<&str, &FileDescriptorProto>, needed: &mut BTreeSet<String>) {
    if let Some(file) = files.get(name)
        && needed.insert(name.to_owned())
    {
        file.dependency.iter().for_each(|import| require(import, files, needed));
    }
}
