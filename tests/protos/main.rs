//! The protos remain compatible, and their versions have a meaning (the versioning policy that Envoy's API began with).
#![allow(clippy::unwrap_used)]

mod baseline;
mod facts;

use std::path::Path;

use baseline::missing;
use facts::{facts, is_googles};
use prost_reflect::{DescriptorPool, FileDescriptor};

fn pool() -> DescriptorPool {
    let mut pool = DescriptorPool::new();
    for set in [
        mixer_adapter_core::proto::DESCRIPTORS,
        mixer_adapter_config::proto::DESCRIPTORS,
        mixer_adapter_engine::proto::DESCRIPTORS,
    ] {
        pool.decode_file_descriptor_set(set).unwrap();
    }
    pool
}

#[test]
fn published_protos_remain_compatible() {
    let baseline = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protos/baseline.txt");
    baseline::check(&facts(&pool()), &baseline);
}

/// How stable a package is, by the version it ends in: `v1`, `v1beta1`, `v1alpha1`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stability {
    Alpha,
    Beta,
    Stable,
}

fn stability(package: &str) -> Option<Stability> {
    let version = package.rsplit('.').next()?.strip_prefix('v')?;
    let letters: String = version.chars().filter(|letter| !letter.is_ascii_digit()).collect();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match letters.as_str() {
        "" => is_number(version).then_some(Stability::Stable),
        word => {
            let (major, minor) = version.split_once(word)?;
            let stability = match word {
                "alpha" => Stability::Alpha,
                "beta" => Stability::Beta,
                _ => return None,
            };
            (is_number(major) && is_number(minor)).then_some(stability)
        }
    }
}

#[test]
fn a_package_says_how_stable_it_is() {
    assert_eq!(stability("mixer_adapter.v1"), Some(Stability::Stable));
    assert_eq!(stability("istio.policy.v1beta1"), Some(Stability::Beta));
    assert_eq!(stability("istio.mcp.v1alpha1"), Some(Stability::Alpha));
    for unversioned in ["listentry", "a.v", "a.valpha1", "a.v1gamma1", "a.1"] {
        assert_eq!(stability(unversioned), None, "{unversioned}");
    }
}

/// A package in which `from` uses something of a less stable one.
fn leans_on(from: &FileDescriptor) -> Option<String> {
    let own = stability(from.package_name())?;
    let others = from.dependencies().filter(|file| !is_googles(file));
    let mut less = others.filter(|file| {
        stability(file.package_name()).is_some_and(|other| other < own && other == Stability::Alpha)
    });
    less.next().map(|file| file.package_name().to_owned())
}

#[test]
fn our_packages_are_versioned_and_no_stable_one_refers_to_an_alpha_one() {
    let pool = pool();
    let ours = pool.files().filter(|file| file.package_name().starts_with("mixer_adapter"));
    let ours: Vec<_> = ours.map(|file| file.package_name().to_owned()).collect();
    assert!(!ours.is_empty() && ours.iter().all(|package| stability(package).is_some()), "{ours:?}");
    for file in pool.files() {
        assert_eq!(leans_on(&file), None, "{}", file.name());
    }
}

/// A set of one file, and of one that it may refer to.
fn compiled(text: &str) -> DescriptorPool {
    let directory = tempfile::tempdir().unwrap();
    let alpha = "syntax = \"proto3\"; package b.v1alpha1; message M {}";
    std::fs::write(directory.path().join("alpha.proto"), alpha).unwrap();
    std::fs::write(directory.path().join("a.proto"), format!("syntax = \"proto3\"; package a.v1; {text}"))
        .unwrap();
    let mut compiler = protox::Compiler::new([directory.path()]).unwrap();
    compiler.include_imports(true).open_file("a.proto").unwrap();
    DescriptorPool::decode(&*compiler.encode_file_descriptor_set()).unwrap()
}

#[test]
fn a_stable_package_that_refers_to_an_alpha_one_is_found() {
    let pool = compiled("import \"alpha.proto\"; message M { b.v1alpha1.M m = 1; }");
    assert_eq!(leans_on(&pool.get_file_by_name("a.proto").unwrap()).as_deref(), Some("b.v1alpha1"));
}

#[test]
fn every_incompatible_change_takes_a_fact_away_and_an_addition_none() {
    let before = "message M { int32 n = 1; repeated string s = 2; map<string, int64> m = 3; oneof o { bool b = 4; } E e = 5; }
        enum E { ZERO = 0; ONE = 1; }
        service S { rpc Do(M) returns (stream M); }";
    let published = facts(&compiled(before));
    let gone = |from: &str, to: &str| {
        assert!(before.contains(from), "{from}");
        missing(&published, &facts(&compiled(&before.replace(from, to))))
    };
    for (change, from, to, told) in [
        ("a field's number", "n = 1;", "n = 9;", "field a.v1.M.n = 1: int32"),
        ("a field's type", "int32 n", "int64 n", "field a.v1.M.n = 1: int32"),
        ("a field's name", "int32 n ", "int32 nn ", "field a.v1.M.n = 1: int32"),
        ("a field's removal", "int32 n = 1;", "", "field a.v1.M.n = 1: int32"),
        ("repeated no more", "repeated string", "string", "field a.v1.M.s = 2: repeated string"),
        ("a map's values", "int64> m", "int32> m", "field a.v1.M.m = 3: map<string, int64>"),
        ("out of a oneof", "oneof o { bool b = 4; }", "bool b = 4;", "field a.v1.M.b = 4: oneof o bool"),
        ("a value's number", "ONE = 1", "ONE = 2", "value a.v1.E.ONE = 1"),
        ("a value's name", "ONE = 1", "UNO = 1", "value a.v1.E.ONE = 1"),
        ("a stream", "(stream M)", "(M)", "method /a.v1.S/Do (a.v1.M) returns (stream a.v1.M)"),
        ("a method's name", "rpc Do", "rpc Doo", "method /a.v1.S/Do (a.v1.M) returns (stream a.v1.M)"),
    ] {
        assert_eq!(gone(from, to), [told], "{change}");
    }
    for (from, to) in [
        ("int32 n = 1;", "int32 n = 1; string more = 9;"),
        ("ONE = 1;", "ONE = 1; TWO = 2;"),
        ("enum E", "message N {} enum E"),
    ] {
        assert_eq!(gone(from, to), [""; 0], "{to}");
    }
}
