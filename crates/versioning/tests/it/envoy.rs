//! The policy on the API it was written for: two releases of Envoy's, as the crate envoy-types has them.
//!
//! cargo fetches the sources of both, and nothing of them is compiled:
//! `cargo test -p mixer-adapter-versioning --test it envoy:: -- --ignored`.

use std::{fs, path::PathBuf, process::Command};

use mixer_adapter_versioning::{ProtoSet, Rule, compare};

/// The releases of the crate: each has the descriptors of another state of the API.
const BEFORE: &str = "0.7.6";
const NOW: &str = "0.7.7";

/// Returns the descriptors of a version of envoy-types.
fn descriptors(version: &str) -> ProtoSet {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    fs::write(folder.path().join("src/lib.rs"), "").unwrap();
    let manifest = format!(
        "[package]\nname = \"fetched\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n\
         [target.'cfg(any())'.dependencies]\nenvoy-types = \"={version}\"\n"
    );
    fs::write(folder.path().join("Cargo.toml"), manifest).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let output =
        Command::new(cargo).args(["metadata", "--format-version=1"]).current_dir(&folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|package| package["name"] == "envoy-types").unwrap();
    let manifest = PathBuf::from(package["manifest_path"].as_str().unwrap());
    ProtoSet::open(&[manifest.with_file_name("src/generated/types.bin")], &[]).unwrap()
}

#[test]
#[ignore = "fetches two versions of envoy-types"]
fn in_envoys_last_two_releases_only_the_breaks_are_found_that_were_really_made() {
    let found = compare(&descriptors(NOW), &descriptors(BEFORE));
    let found: Vec<_> = found.iter().map(|violation| (violation.rule, &*violation.element)).collect();
    // A published field was hidden in both messages: `[#not-implemented-hide:]` stands above it since.
    assert_eq!(
        found,
        [
            (Rule::Changed, "envoy.service.ext_proc.v3.HttpBody.end_of_stream_without_message"),
            (Rule::Changed, "envoy.service.ext_proc.v3.StreamedBodyResponse.end_of_stream_without_message"),
        ]
    );
}
