//! What the manifests declare is documented.

use std::{
    fs,
    path::{Path, PathBuf},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The folders of the crates, and their manifests.
fn crates() -> impl Iterator<Item = (PathBuf, String)> {
    let within = |folder: &str| fs::read_dir(Path::new(ROOT).join(folder)).unwrap();
    let folders = ["crates", "adapters"].into_iter().flat_map(within).map(|entry| entry.unwrap().path());
    let folders = ["", "build", "proto", "templates", "adapters"]
        .map(|folder| Path::new(ROOT).join(folder))
        .into_iter()
        .chain(folders);
    folders.filter_map(|folder| {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
        Some((folder, manifest))
    })
}

/// The names of the features of a manifest, without `default`.
fn features(manifest: &str) -> Vec<&str> {
    let section = manifest.split_once("\n[features]\n").map_or("", |(_, rest)| rest);
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let names =
        lines.filter(|line| !line.starts_with('#')).filter_map(|line| Some(line.split_once(" = ")?.0));
    names.filter(|name| *name != "default").collect()
}

#[test]
fn the_docs_of_a_crate_describe_its_features() {
    let mut found = 0;
    for (folder, manifest) in crates() {
        let mut docs = fs::read_to_string(folder.join("src/lib.rs")).unwrap();
        if docs.contains("/docs/overview.md") {
            docs += &fs::read_to_string(folder.join("docs/overview.md")).unwrap();
        }
        for feature in features(&manifest) {
            let described = docs.lines().any(|line| {
                let rest = line.trim_start_matches("//! ").strip_prefix(&format!("* `{feature}`"));
                rest.is_some_and(|rest| rest.starts_with(": ") || rest.starts_with(" (default): "))
            });
            assert!(described, "{}: `{feature}` is missing in the section Features", folder.display());
            found += 1;
        }
    }
    assert!(found >= 7, "{found} features");
}

#[test]
fn the_docs_name_the_declared_rust_version() {
    let read = |path: &str| fs::read_to_string(Path::new(ROOT).join(path)).unwrap();
    let declared = |path: &str| {
        let manifest = read(path);
        let version = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \""));
        version.unwrap().trim_end_matches('"').to_owned()
    };
    let version = declared("Cargo.toml");
    assert_eq!(declared("xtask/Cargo.toml"), version);
    for page in ["README.md", "CONTRIBUTING.md", "docs/writing-an-adapter.md"] {
        assert!(read(page).contains(&format!("Rust {version} ")), "{page} does not name Rust {version}");
    }
}
