//! Published protos remain compatible, and their versions have a meaning: the policy of `mixer-adapter-versioning` on our own.

use std::{fs, path::Path};

use mixer_adapter::template::STANDARD;
use mixer_adapter_build::Template;
use mixer_adapter_versioning::{Baseline, PackageVersion, ProtoSet, assert_baseline};
use prost_reflect::DescriptorPool;

/// Returns the messages and services of the Mixer API, sessions and the standard templates.
pub(crate) fn mixer() -> DescriptorPool {
    let mut pool = DescriptorPool::decode(mixer_adapter::proto::DESCRIPTORS).unwrap();
    let services = ["mixer/v1/mixer.proto", "mixer/adapter/model/v1beta1/infrastructure_backend.proto"];
    for file in mixer_adapter_build::compile(&[], &services).unwrap().files() {
        if pool.get_file_by_name(file.name()).is_none() {
            pool.add_file_descriptor_proto(file.file_descriptor_proto().clone()).unwrap();
        }
    }
    for (_, descriptor) in STANDARD {
        pool.decode_file_descriptor_set(*descriptor).unwrap();
    }
    pool
}

/// The protos of the framework, the services that are generated from templates, and the configurations of the adapters.
fn published() -> ProtoSet {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let services = tempfile::tempdir().unwrap();
    for (name, _) in STANDARD {
        let template = Template::open(root.join("templates").join(name).join("template.proto")).unwrap();
        let path = services.path().join(template.service_proto_name());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, template.service_proto()).unwrap();
    }
    ProtoSet::open(&[&*root.join("proto"), &root.join("adapters"), services.path()], &[]).unwrap()
}

#[test]
fn published_protos_remain_compatible() {
    let baseline = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto/baseline.txt");
    assert_baseline(&published(), &baseline, env!("CARGO_PKG_VERSION"));
}

#[test]
fn our_packages_are_versioned() {
    let protos = published();
    let packages = protos.pool().files().map(|file| file.package_name().to_owned());
    let ours: Vec<_> = packages.filter(|package| package.starts_with("mixer_adapter")).collect();
    assert!(!ours.is_empty() && ours.iter().all(|package| PackageVersion::of(package).is_some()), "{ours:?}");
}

#[test]
fn deprecated_elements_are_listed_in_deprecated_md() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let baseline: Baseline = fs::read_to_string(root.join("proto/baseline.txt")).unwrap().parse().unwrap();
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
