//! Writes the files that are generated and committed.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{
    descriptors::without_details,
    process::{cargo, output, root, run},
};

/// Writes `crates/config/proto/envoy.binpb` and adds new entries to the baselines of the protos.
///
/// # Errors
///
/// The sources cannot be fetched, a file cannot be written, or a proto has changed in an incompatible way.
pub(crate) fn generate() -> Result<()> {
    let source = envoy_descriptors()?;
    let descriptors = fs::read(&source).with_context(|| format!("cannot read {}", source.display()))?;
    fs::write(root().join("crates/config/proto/envoy.binpb"), without_details(&descriptors)?)?;
    for package in ["mixer-adapter", "mixer-adapters"] {
        run(cargo()
            .args(["test", "--package", package, "--test", "protos"])
            .env("UPDATE_PROTO_BASELINE", "1"))?;
    }
    Ok(())
}

/// Returns the path of the descriptors in the sources of the crate envoy-types.
fn envoy_descriptors() -> Result<PathBuf> {
    let metadata = output(cargo().args([
        "metadata",
        "--locked",
        "--format-version=1",
        "--manifest-path",
        "xtask/Cargo.toml",
    ]))?;
    let metadata: Value = serde_json::from_slice(&metadata)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages
        .filter(|package| package["name"] == "envoy-types")
        .find_map(|package| package["manifest_path"].as_str())
        .map(|manifest| PathBuf::from(manifest).with_file_name("src/generated/types.bin"))
        .context("cargo metadata does not list envoy-types, which xtask/Cargo.toml depends on")
}
