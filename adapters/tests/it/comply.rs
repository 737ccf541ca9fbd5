//! `comply`: the contract of adapters, tested on servers in this and in another language.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::LazyLock,
};

use mixer_adapter::template::{ListEntry, Template as _};
use serde_json::Value as Json;

use crate::support::{Ran, Server, debian, run};

/// A server in Python, with a fault.
struct Python {
    child: Child,
    address: String,
    _descriptors: tempfile::TempDir,
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The folder with gRPC for Python, from PyPI.
fn packages() -> Option<&'static Path> {
    static FOLDER: LazyLock<Option<PathBuf>> =
        LazyLock::new(|| install().map_err(|reason| debian::skip("grpcio", &reason)).ok());
    FOLDER.as_deref()
}

fn install() -> Result<PathBuf, String> {
    const PACKAGES: [&str; 3] = ["grpcio==1.85.1", "protobuf==7.36.2", "typing-extensions==4.16.0"];
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folder = parent.join(PACKAGES.join(","));
    if folder.is_dir() {
        return Ok(folder);
    }
    // Made apart and renamed, so that the directory is complete or absent also if several tests install at the same time.
    let made = tempfile::tempdir_in(parent).map_err(|error| error.to_string())?;
    let pip = "-m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --only-binary :all: --no-compile --target";
    let ran = Command::new("python3").args(pip.split(' ')).arg(made.path()).args(PACKAGES).output();
    match ran {
        Ok(ran) if ran.status.success() => {}
        failed => return Err(format!("{failed:?}")),
    }
    match std::fs::rename(made.path(), &folder) {
        Err(error) if !folder.is_dir() => Err(error.to_string()),
        _ => Ok(folder),
    }
}

impl Python {
    fn start(packages: &Path, fault: &str) -> Self {
        let descriptors = tempfile::tempdir().unwrap();
        let (template, backend) = (descriptors.path().join("template"), descriptors.path().join("backend"));
        std::fs::write(&template, ListEntry::DESCRIPTOR).unwrap();
        let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto");
        let mut compiler = protox::Compiler::new([protos]).unwrap();
        compiler.include_imports(true);
        let model = ["check", "extensions", "infrastructure_backend"];
        let model = model.map(|name| format!("mixer/adapter/model/v1beta1/{name}.proto"));
        for file in model.iter().map(String::as_str).chain(["policy/v1beta1/type.proto"]) {
            compiler.open_file(file).unwrap();
        }
        std::fs::write(&backend, compiler.encode_file_descriptor_set()).unwrap();
        let mut child = Command::new("python3")
            .env("PYTHONPATH", packages)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/comply.py"))
            .args([&template, &backend])
            .arg(fault)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Self { child, address: format!("127.0.0.1:{}", port.trim()), _descriptors: descriptors }
    }

    fn comply(&self, arguments: &[&str]) -> Ran {
        let config = [r#"{"entries": ["bob"]}"#, r#"entries[0]={"entries": [""]}"#];
        let command = ["comply", &self.address, "--config", config[0], "--refuses", config[1]];
        run(&[&command, arguments].concat())
    }
}

/// The broken rules of a report in JSON, with their reasons.
fn broken(ran: &Ran) -> Vec<(String, String)> {
    let report = ran.json();
    let rules = report["rules"].as_array().unwrap().iter();
    let broken = rules.filter(|rule| rule["outcome"] == "broken");
    let text = |rule: &Json, name: &str| rule[name].as_str().unwrap().to_owned();
    broken.map(|rule| (text(rule, "rule"), text(rule, "reason"))).collect()
}

#[test]
fn a_server_in_python_that_keeps_the_contract_passes() {
    let Some(packages) = packages() else { return };
    let ran = Python::start(packages, "none").comply(&[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.ends_with("\n11 rules: 11 kept, 0 broken, 0 not tested\n"), "{}", ran.stdout);
}

#[test]
fn faults_of_a_server_in_python_are_found() {
    let Some(packages) = packages() else { return };
    for (fault, rule, reason) in [
        (
            "expects a value",
            "every-instance-is-answered",
            "`listentry` fails with Unknown (Exception calling",
        ),
        (
            "denies by an error",
            "denials-are-answers",
            "`listentry` fails with PermissionDenied (on the list) for ",
        ),
        ("alternates", "answers-hold", "`listentry` answers "),
    ] {
        let ran = Python::start(packages, fault).comply(&["--json"]);
        assert_eq!(ran.code, 1, "{ran:?}");
        let [(broken, why)] = &broken(&ran)[..] else { panic!("{fault}: {ran:?}") };
        assert_eq!(broken, rule);
        assert!(why.starts_with(reason), "{why}");
    }
}

#[test]
fn the_adapters_of_this_program_keep_the_contract() {
    let server = Server::start(&[]);
    for (adapter, template) in [("denier", "checknothing"), ("noop", "metric"), ("noop", "quota")] {
        let ran = run(&["comply", &server.grpc, "--adapter", adapter, "--template", template]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}

#[test]
fn a_report_for_ci_has_a_test_case_for_each_rule() {
    let server = Server::start(&[]);
    let command = ["comply", &server.grpc, "--template", "listentry", "--adapter", "denier", "-o", "junit"];
    let accepted = r#"status.code={"status": {"message": "a<b"}}"#;
    let ran = run(&[&command[..], &["--refuses", accepted, "--except", "answers-hold"]].concat());
    assert_eq!(ran.code, 1, "{ran:?}");
    let head = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{}\" tests=\"11\"",
        server.grpc
    );
    assert!(ran.stdout.starts_with(&head), "{}", ran.stdout);
    assert!(ran.stdout.contains("<skipped message=\"it is excepted\"/>"), "{}", ran.stdout);
    assert!(ran.stdout.contains("a&lt;b") && !ran.stdout.contains("a<b"), "{}", ran.stdout);
}

#[test]
fn a_server_without_sessions_and_templates_is_reported() {
    let silent = crate::support::recorder::Recorder::start(|_| Err((12, "")));
    let ran = run(&["comply", &silent.address, "--json"]);
    let [(rule, reason)] = &broken(&ran)[..] else { panic!("{ran:?}") };
    assert_eq!(rule, "descriptors");
    assert!(reason.starts_with("the server serves none of `apikey`, "), "{reason}");
    let ran = run(&["comply", "127.0.0.1:1"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.contains("start a server with `serve`, or give the address of another one"),
        "{ran:?}"
    );
}
