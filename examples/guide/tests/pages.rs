//! The code of the guide compiles, and its program answers behind an Envoy as the page says.
#![allow(clippy::unwrap_used)]

#[path = "../src/demo.rs"]
mod demo;

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
};

/// The sources that the pages show.
const SOURCES: [&str; 11] = [
    include_str!("../src/demo.rs"),
    include_str!("../src/answers.rs"),
    include_str!("../src/settings.rs"),
    include_str!("../src/state.rs"),
    include_str!("../src/context.rs"),
    include_str!("../../embedded/src/lib.rs"),
    include_str!("../../embedded/src/bin/engine.rs"),
    include_str!("../../embedded/tests/embedding.rs"),
    include_str!("../../tagcheck/src/main.rs"),
    include_str!("../../denylist/src/main.rs"),
    include_str!("../../../adapters/tests/it/fake_mixer.rs"),
];

/// The words of a text, so that indentation does not matter.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_code_of_each_page_is_compiled() {
    let sources = SOURCES.map(|source| words(source).replace("pub ", ""));
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = fs::read_dir(root.join("docs/guide")).unwrap().map(|entry| entry.unwrap().path());
    let mut blocks = 0;
    for path in pages.chain([root.join("docs/testing.md")]) {
        let text = fs::read_to_string(&path).unwrap();
        for block in text.split("\n```rust\n").skip(1).map(|rest| rest.split("\n```").next().unwrap()) {
            let code = words(block).replace("pub ", "");
            let is_compiled = sources.iter().any(|source| source.contains(&code));
            assert!(is_compiled, "{}: no example has this code:\n{block}", path.display());
            blocks += 1;
        }
    }
    assert!(blocks > 15, "{blocks} blocks of code");
}

const PAGE: &str = include_str!("../../../docs/guide/behind-envoy.md");

/// The blocks of a language, each with what follows it.
fn blocks(language: &str) -> Vec<(&'static str, &'static str)> {
    let begin = format!("\n```{language}\n");
    PAGE.split(&begin).skip(1).map(|rest| rest.split_once("\n```\n").unwrap()).collect()
}

#[test]
fn the_files_of_the_page_are_those_of_the_example() {
    assert_eq!(blocks("proto")[0].0, include_str!("../demo.proto").trim_end());
    assert!(include_str!("../sample.yaml").contains(blocks("yaml")[0].0));
}

/// A process that ends with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // `try` stops what it has started.
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

fn program(arguments: &[&str]) -> Command {
    let mut program = Command::new(env!("CARGO_BIN_EXE_guide"));
    program.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
    program
}

/// Starts the service of the page on a free port, and waits until it listens.
fn start_service(folder: &Path) -> (Ended, String) {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let text = blocks("python")[0].0.replace("8090", &port);
    let file = folder.join("users.py");
    fs::write(&file, text + "\n").unwrap();
    let mut service = Command::new("python3").arg("-u").arg(&file).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(service.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "serving\n");
    (Ended(service), port)
}

#[test]
fn the_commands_of_the_page_do_what_it_says_behind_a_real_envoy() {
    let envoys = env!("CARGO_TARGET_TMPDIR");
    let installed = program(&["try", "--install", "--envoy-folder", envoys]).output().unwrap();
    if !installed.status.success() {
        return test_debian::skip("Envoy", &format!("{installed:?}"));
    }
    let folder = tempfile::tempdir().unwrap();
    let (service, port) = start_service(folder.path());
    let sample = folder.path().join("sample.yaml").display().to_string();
    fs::write(&sample, include_str!("../sample.yaml").replace("8090", &port)).unwrap();
    let flags = ["try", "--config", &sample, "--envoy-listen", "127.0.0.1:0", "--envoy-folder", envoys];
    let mut tried = program(&flags).spawn().unwrap();
    let mut lines = BufReader::new(tried.stdout.take().unwrap()).lines().map(Result::unwrap);
    let _tried = Ended(tried);
    let line = lines.find(|line| line.starts_with("Try `curl -i http://")).expect("an address of Envoy");
    let front = line.split("http://").nth(1).unwrap().split('/').next().unwrap();

    let mut service = Some(service);
    let mut ran = 0;
    for (commands, after) in blocks("sh").into_iter().filter(|(commands, _)| commands.starts_with("curl ")) {
        let shown = after.strip_prefix("```text\n").unwrap().split("\n```").next().unwrap();
        if shown.contains(" 503 ") {
            // The page stops it here.
            drop(service.take());
        }
        let output =
            Command::new("sh").args(["-c", &commands.replace("127.0.0.1:10000", front)]).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap().replace('\r', "");
        for part in shown.split("...\n") {
            assert!(printed.contains(part.trim()), "{commands}: {part:?} is not in\n{printed}");
        }
        ran += 1;
    }
    assert!(ran >= 3 && service.is_none(), "an allowed request, a denied one and one without the service");

    let (commands, _) = *blocks("sh").iter().find(|(commands, _)| commands.contains("envoy-config")).unwrap();
    let line = commands.lines().find(|line| line.contains("envoy-config")).unwrap();
    let command = line.replace("cargo run --", env!("CARGO_BIN_EXE_guide"));
    let printed = Command::new("sh").args(["-ec", &command]).current_dir(folder.path()).status().unwrap();
    assert!(printed.success(), "{command}");
    let envoy = String::from_utf8(installed.stdout).unwrap();
    let mut validate = Command::new(envoy.trim());
    validate.args(["--mode", "validate", "--log-level", "error", "-c"]).arg(folder.path().join("envoy.yaml"));
    assert!(validate.status().unwrap().success());
}
