//! The crate that generated code refers to, by the Cargo.toml of the author.

use std::{env, fs, process::Command};

use mixer_adapter_build::ConfigProto;

/// Runs an ignored test like the build script of a package with this dependency, and returns its output. The name of the
/// crate is looked up once in a process, so each package needs a process of its own.
fn output_of(test: &str, dependencies: &str) -> String {
    let package = tempfile::tempdir().unwrap();
    let manifest =
        format!("[package]\nname = \"author\"\nedition = \"2024\"\n[dependencies]\n{dependencies}\n");
    fs::write(package.path().join("Cargo.toml"), manifest).unwrap();
    fs::create_dir(package.path().join("src")).unwrap();
    fs::write(package.path().join("src/lib.rs"), "").unwrap();
    let output = Command::new(env::current_exe().unwrap())
        .args(["--exact", &format!("author_names::{test}"), "--ignored", "--nocapture"])
        .env("CARGO_MANIFEST_DIR", package.path())
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "run by the other tests, with the manifest of an author"]
fn print_generated_code() {
    println!("{}", ConfigProto::open("tests/data/config/config.proto").unwrap().rust().unwrap());
}

#[test]
#[ignore = "run by the other tests, with the manifest of an author"]
fn run_build_script() {
    mixer_adapter_build::adapter("tests/data/config/config.proto");
}

#[track_caller]
fn refers_to(name: &str, dependencies: &str) {
    let code = output_of("print_generated_code", dependencies);
    assert!(code.contains(&format!("impl ::{name}::adapter::Config for Params {{")), "{code}");
    assert!(code.contains(&format!("::core::option::Option<::{name}::prost_types::Duration>")), "{code}");
}

#[test]
fn an_adapter_can_depend_on_the_core_or_on_the_facade() {
    refers_to("mixer_adapter_core", "mixer-adapter-core = \"0.1\"");
    refers_to("mixer_adapter", "mixer-adapter = \"0.1\"");
    refers_to("mixer_adapter_core", "mixer-adapter = \"0.1\"\nmixer-adapter-core = \"0.1\"");
}

#[test]
fn dependencies_can_be_renamed() {
    refers_to("mixer", "mixer = { package = \"mixer-adapter-core\", version = \"0.1\" }");
    refers_to("policy", "policy = { package = \"mixer-adapter\", version = \"0.1\" }");
}

#[test]
fn a_package_without_the_framework_is_refused_with_what_to_add() {
    let output = output_of("run_build_script", "prost = \"0.14\"");
    assert!(output.contains("cargo::error=Cargo.toml has none of the crates"), "{output}");
    assert!(output.contains("mixer-adapter-core and mixer-adapter-templates"), "{output}");
}
