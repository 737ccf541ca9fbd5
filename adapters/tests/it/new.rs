//! `new`: the crate that it writes is complete.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use serde_json::Value as Json;

use crate::support::{Ran, binary};

/// The templates of the program.
fn templates() -> Vec<String> {
    let listed = crate::support::run(&["reference", "templates", "-o", "json"]).json();
    let names = listed.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned());
    names.filter(|name| !name.contains('.')).collect()
}

/// The name and the arguments of a crate of each variety.
fn varieties() -> Vec<(String, Vec<String>)> {
    let mut varieties = vec![("own-program".to_owned(), vec!["--own-template".to_owned()])];
    varieties.extend(
        templates()
            .into_iter()
            .map(|template| (format!("{template}-program"), vec!["--template".to_owned(), template])),
    );
    let library = |(name, arguments): &(String, Vec<String>)| {
        (name.replace("-program", "-library"), [arguments.clone(), vec!["--lib".to_owned()]].concat())
    };
    let libraries: Vec<_> = varieties.iter().map(library).collect();
    [varieties, libraries].concat()
}

fn new(folder: &Path, name: &str, arguments: &[String]) -> Ran {
    binary().current_dir(folder).args(["new", name]).args(arguments).output().unwrap().into()
}

/// Runs a tool, and returns its output.
fn succeed(command: &mut Command) -> String {
    let ran: Ran = command.stdin(Stdio::null()).output().unwrap().into();
    assert_eq!(ran.code, 0, "{command:?}: {ran:?}");
    ran.stdout
}

#[test]
fn the_files_of_each_variety_are_formatted_and_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(templates().len(), 11);
    for (name, arguments) in varieties() {
        let ran = new(folder.path(), &name, &arguments);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
        let written = folder.path().join(&name);
        let read = |path: &str| fs::read_to_string(written.join(path)).unwrap();
        for path in ["README.md", "Dockerfile", ".gitignore", "build.rs"] {
            assert!(!read(path).is_empty());
        }
        for path in ["sample.yaml", ".github/workflows/ci.yml"] {
            let documents = serde_saphyr::from_multiple::<Json>(&read(path)).unwrap();
            assert!(documents.iter().all(Json::is_object), "{name}/{path}");
        }
        mixer_adapter_build::ConfigProto::open(written.join("config.proto")).unwrap();
        if name.starts_with("own") {
            mixer_adapter_build::Template::open(written.join("template.proto")).unwrap();
        }
        let cargo = || {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.current_dir(&written);
            cargo
        };
        succeed(cargo().args(["fmt", "--check"]));
        let metadata = succeed(cargo().args(["metadata", "--no-deps", "--format-version=1", "--offline"]));
        let metadata: Json = serde_json::from_str(&metadata).unwrap();
        assert_eq!(metadata["packages"][0]["name"], name);
    }
}

#[test]
fn a_crate_depends_on_the_source_tree_if_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).unwrap();
    let source = ["--source".to_owned(), root.display().to_string()];
    let ran = new(folder.path(), "demo", &source);
    assert!(ran.stdout.contains(&format!("the source tree {}", root.display())), "{ran:?}");
    let manifest = fs::read_to_string(folder.path().join("demo/Cargo.toml")).unwrap();
    assert!(manifest.contains(&format!("mixer-adapter = {{ path = \"{}\" }}", root.display())), "{manifest}");
    let elsewhere = ["--source".to_owned(), folder.path().display().to_string()];
    let ran = new(folder.path(), "other", &elsewhere);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.stderr.contains("is not the source tree of mixer-adapter"), "{ran:?}");
    assert!(!folder.path().join("other").exists());
}

#[test]
fn names_that_no_crate_has_existing_folders_and_unknown_templates_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["", "Demo", "1st", "a_b", "a/b", "../a", "demo-", &"a".repeat(64)] {
        let ran = new(folder.path(), name, &[]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.stderr.contains("is not the name of a crate"), "{ran:?}");
    }
    for name in ["fn", "test", "tokio", "mixer-adapter-core"] {
        let ran = new(folder.path(), name, &[]);
        assert_eq!((ran.code, ran.stderr), (2, format!("error: `{name}` is reserved\n")));
    }
    let ran = new(folder.path(), "demo", &["--template".to_owned(), "metrik".to_owned()]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (2, "error: unknown template `metrik`; did you mean metric?\n")
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is written");
    fs::create_dir(folder.path().join("demo")).unwrap();
    let ran = new(folder.path(), "demo", &[]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("cannot create the folder demo: File exists"), "{ran:?}");
}

#[test]
fn a_workspace_that_would_refuse_the_crate_is_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let (manifest, inner) = (folder.path().join("Cargo.toml"), folder.path().join("inner"));
    fs::write(&manifest, "[workspace]\nmembers = []\n").unwrap();
    fs::create_dir(&inner).unwrap();
    let ran = new(&inner, "demo", &[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let warning =
        format!("warning: {} is a workspace, and cargo refuses crates below it", manifest.display());
    assert!(ran.stderr.starts_with(&warning), "{ran:?}");
}

/// The varieties that differ in their code: one template of each, as a program, and libraries.
const TESTED: [&str; 8] = [
    "listentry-program",
    "checknothing-program",
    "metric-program",
    "quota-program",
    "kubernetes-program",
    "own-program",
    "listentry-library",
    "own-library",
];

/// The root of a workspace with the profile of this one, so that it can use the same artifacts.
const WORKSPACE: &str = "[workspace]\nmembers = [\"*\"]\nresolver = \"3\"\n\n\
    [profile.dev]\ndebug = \"line-tables-only\"\n\n[profile.dev.package.\"*\"]\ndebug = false\n";

#[test]
#[ignore = "compiles crates for minutes: cargo test -p mixer-adapters --test it new:: -- --ignored"]
fn each_variety_builds_without_warnings_passes_its_tests_and_serves() {
    let folder = tempfile::tempdir().unwrap();
    for (name, arguments) in varieties() {
        assert_eq!(new(folder.path(), &name, &arguments).code, 0);
    }
    fs::write(folder.path().join("Cargo.toml"), WORKSPACE).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    fs::copy(root.join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();
    let target = Path::new(env!("CARGO_BIN_EXE_mixer-adapter")).ancestors().nth(2).unwrap();
    let cargo = || {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(folder.path()).env("CARGO_TARGET_DIR", target);
        cargo
    };
    succeed(cargo().args(["clippy", "--offline", "--all-targets", "--", "-D", "warnings"]));
    let selected = TESTED.map(|name| ["--package", name]);
    let tested = succeed(cargo().args(["test", "--offline"]).args(selected.as_flattened()));
    // The contract, and the test of the adapter.
    assert_eq!(tested.matches("test result: ok. 2 passed").count(), TESTED.len(), "{tested}");
    for name in TESTED {
        serves(&folder.path().join(name), target, name);
    }
}

/// `cargo run -- serve` serves, and the command that it prints gets an answer.
fn serves(folder: &Path, target: &Path, name: &str) {
    let cargo = || {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(folder).env("CARGO_TARGET_DIR", target).args(["run", "--offline", "--quiet", "--"]);
        cargo
    };
    let validated = succeed(cargo().args(["validate", "sample.yaml"]));
    assert!(validated.ends_with(" 0 errors, 0 warnings\n"), "{validated}");
    assert_eq!(succeed(cargo().arg("--version")), format!("{name} 0.1.0\n"));
    let mut server = Command::new(target.join("debug").join(name))
        .current_dir(folder)
        .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.starts_with("Try `")).expect("a command to try");
    let command = line.split('`').nth(1).unwrap();
    let answer = succeed(Command::new("sh").args(["-c", command]).current_dir(folder));
    server.kill().unwrap();
    server.wait().unwrap();
    let is_denied = answer.starts_with("denied: PERMISSION_DENIED");
    let denies = ["checknothing", "listentry", "own"].into_iter().any(|denying| name.starts_with(denying));
    assert_eq!(is_denied, denies, "{name}: {answer}");
}
