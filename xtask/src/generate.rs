//! Writes the files that are generated and committed.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{
    descriptors::without_details,
    envoy_v2,
    process::{cargo, output, root, run},
};

/// Writes the descriptors of `crates/streams/descriptors`, adds new entries to the baseline of the protos, and writes `docs/reference`.
///
/// # Errors
///
/// The sources cannot be fetched, a file cannot be written, or a proto has changed in an incompatible way.
pub(crate) fn generate() -> Result<()> {
    let source = sources_of("envoy-types")?.join("src/generated/types.bin");
    let descriptors = fs::read(&source).with_context(|| format!("cannot read {}", source.display()))?;
    let folder = root().join("crates/streams/descriptors");
    fs::write(folder.join("envoy.binpb"), without_details(&descriptors)?)?;
    let (v2, successors) = envoy_v2::facts(&sources_of("data-plane-api")?, &descriptors)?;
    fs::write(folder.join("envoy_v2.binpb"), without_details(&v2)?)?;
    fs::write(root().join("crates/config/src/envoy_v2.tsv"), successors)?;
    run(cargo()
        .args(["test", "--package", "mixer-adapter-streams", "--test", "it", "istio_descriptors"])
        .env("UPDATE_ISTIO_DESCRIPTORS", "1"))?;
    run(cargo()
        .args(["test", "--package", "mixer-adapter", "--test", "it", "protos::"])
        .env("UPDATE_PROTO_BASELINE", "1"))?;
    run(cargo()
        .args(["test", "--package", "mixer-adapters", "--test", "it", "reference::"])
        .env("UPDATE_REFERENCE", "1"))
}

/// Returns the folder of the sources of a crate that xtask/Cargo.toml depends on.
fn sources_of(name: &str) -> Result<PathBuf> {
    let metadata = output(cargo().args([
        "metadata",
        "--locked",
        "--format-version=1",
        "--manifest-path",
        "xtask/Cargo.toml",
    ]))?;
    let metadata: Value = serde_json::from_slice(&metadata)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let manifest = packages
        .filter(|package| package["name"] == name)
        .find_map(|package| package["manifest_path"].as_str())
        .with_context(|| format!("cargo metadata does not list {name}, which xtask/Cargo.toml depends on"))?;
    Ok(PathBuf::from(manifest).with_file_name(""))
}
