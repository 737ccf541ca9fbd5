//! The protos of the framework remain compatible, and their versions have a meaning: the policy of `mixer-adapter-versioning` on our own.

use std::{fs, path::Path};

use mixer_adapter_versioning::{Baseline, PackageVersion, ProtoSet, assert_baseline};

/// What the crates have compiled, with the services that are generated from templates.
fn protos() -> ProtoSet {
    let mut protos = ProtoSet::from_descriptors(mixer_adapter_core::proto::DESCRIPTORS).unwrap();
    for set in [mixer_adapter_config::proto::DESCRIPTORS, mixer_adapter_engine::proto::DESCRIPTORS] {
        protos.add_descriptors(set).unwrap();
    }
    protos
}

#[test]
fn published_protos_remain_compatible() {
    let baseline = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protos.txt");
    assert_baseline(&protos(), &baseline, env!("CARGO_PKG_VERSION"));
}

#[test]
fn our_packages_are_versioned() {
    let protos = protos();
    let packages = protos.pool().files().map(|file| file.package_name().to_owned());
    let ours: Vec<_> = packages.filter(|package| package.starts_with("mixer_adapter")).collect();
    assert!(!ours.is_empty() && ours.iter().all(|package| PackageVersion::of(package).is_some()), "{ours:?}");
}

#[test]
fn deprecated_elements_are_listed_in_deprecated_md() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let baseline: Baseline = fs::read_to_string(root.join("tests/protos.txt")).unwrap().parse().unwrap();
    let list = root.join("DEPRECATED.md");
    if std::env::var_os("UPDATE_PROTO_BASELINE").is_some_and(|update| update == "1") {
        fs::write(&list, baseline.deprecations()).unwrap();
    }
    assert_eq!(
        fs::read_to_string(list).unwrap(),
        baseline.deprecations(),
        "written by `cargo xtask generate`"
    );
}
