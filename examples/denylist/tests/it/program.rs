//! The smallest useful adapter is small, and a whole program.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStdout, Command, Output, Stdio},
};

#[test]
fn it_is_at_most_25_lines_of_rust() {
    let lines = include_str!("../../src/main.rs").lines().count();
    assert!(lines <= 25, "src/main.rs has {lines} lines");
}

#[test]
fn it_knows_its_own_name_and_version() {
    let run = |arguments: &[&str], variable: &str| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_denylist"));
        program.args(arguments).env(variable, "localhost").output().unwrap()
    };
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let version = run(&["--version"], "UNUSED").stdout;
    assert_eq!(text(version), concat!("denylist ", env!("CARGO_PKG_VERSION"), "\n"));
    let help = text(run(&["serve", "--help"], "UNUSED").stdout);
    assert!(help.contains("\n  denylist serve --config config/\n"), "{help}");
    assert!(help.contains("[env: DENYLIST_LISTEN=]"), "{help}");
    assert!(!help.contains("MIXER_ADAPTER_") && !help.contains("mixer-adapter serve"), "{help}");
    let refused = text(run(&["serve"], "DENYLIST_LISTEN").stderr);
    assert!(refused.contains("invalid value 'localhost' for '--listen"), "{refused}");
    let warned = text(run(&["adapters"], "MIXER_ADAPTER_LISTEN").stderr);
    assert_eq!(
        warned,
        "warning: no flag has the variable MIXER_ADAPTER_LISTEN; did you mean DENYLIST_LISTEN?\n"
    );
}

struct Server {
    process: Child,
    address: String,
    /// The command that it suggests.
    command: String,
    // Whoever prints to nobody ends.
    _printed: BufReader<ChildStdout>,
}

impl Server {
    fn start() -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_denylist"))
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut printed = BufReader::new(process.stdout.take().unwrap());
        let mut lines = printed.by_ref().lines().map(Result::unwrap);
        let address = lines.find_map(|line| Some(line.strip_prefix("gRPC on ")?.to_owned())).unwrap();
        let line = lines.find(|line| line.starts_with("Try `")).unwrap();
        let command = line.split('`').nth(1).unwrap().to_owned();
        Self { process, address, command, _printed: printed }
    }

    fn call(&self, value: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_denylist"))
            .args(["call", "listentry", "--address", &self.address])
            .args(["--instance", &format!(r#"{{"value": {{"string_value": "{value}"}}}}"#)])
            .args(["--config", r#"{"entries": ["mallory"]}"#])
            .output()
            .unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _already_ended = self.process.kill();
        let _status = self.process.wait();
    }
}

#[test]
fn the_command_that_it_suggests_is_answered() {
    let server = Server::start();
    let answer = Command::new("sh").args(["-c", &server.command]).output().unwrap();
    let text = String::from_utf8(answer.stdout).unwrap();
    assert!(answer.status.success() && text.starts_with("allowed"), "{}: {text}", server.command);
}

#[test]
fn it_serves_and_denies_what_is_on_its_list() {
    let server = Server::start();
    let denied = server.call("mallory");
    let text = String::from_utf8(denied.stdout).unwrap();
    assert!(text.contains("on the deny list"), "{text}{}", String::from_utf8(denied.stderr).unwrap());
    let allowed = server.call("alice");
    assert!(allowed.status.success());
    assert!(!String::from_utf8(allowed.stdout).unwrap().contains("on the deny list"));
}

const GUIDE: &str = include_str!("../../../../docs/writing-an-adapter.md");

/// The files of the guide, by the fences around them.
fn block(language: &str, holds: &str) -> String {
    let fence = format!("```{language}\n");
    let blocks = GUIDE.split(&fence).skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.filter(|block| block.contains(holds)).map(str::to_owned).next().unwrap()
}

#[test]
fn the_files_of_the_guide_are_those_of_the_example() {
    assert_eq!(block("proto", "message Params"), include_str!("../../config.proto"));
    assert_eq!(block("rust", "mixer_adapter_build::adapter"), include_str!("../../build.rs"));
    // It begins with a description, which the guide does not have.
    let (_, program) = include_str!("../../src/main.rs").split_once('\n').unwrap();
    assert_eq!(block("rust", "mixer_adapter::main!"), program);
    let manifest = block("toml", "[package]");
    let sections = |manifest: &str| -> Vec<String> {
        let lines = manifest.lines().filter(|line| line.starts_with("mixer-adapter"));
        lines.map(|line| line.split(['.', ' ']).next().unwrap().to_owned()).collect()
    };
    // The example tests its protos, too.
    let example = include_str!("../../Cargo.toml").split("[dev-dependencies]").next().unwrap();
    assert_eq!(sections(&manifest), sections(example));
}

#[test]
fn the_commands_of_the_guide_print_what_it_shows() {
    let server = Server::start();
    let mut ran = 0;
    for (at, _) in GUIDE.match_indices("\ncargo run -- ") {
        let (line, after) = GUIDE[at + 1..].split_once('\n').unwrap();
        let arguments = line.strip_prefix("cargo run -- ").unwrap();
        if arguments == "serve" {
            continue; // it runs
        }
        let command = format!("exec '{}' {arguments}", env!("CARGO_BIN_EXE_denylist"));
        let output = Command::new("sh")
            .args(["-c", &command])
            .env("DENYLIST_CALL_ADDRESS", &server.address)
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        if let Some(shown) = after.strip_prefix("```\n\nwhich prints\n\n```text\n") {
            let shown = shown.lines().take_while(|line| *line != "```");
            let timeless = |line: &&str| !line.starts_with("took ");
            let shown: Vec<&str> = shown.filter(timeless).collect();
            assert_eq!(printed.lines().filter(timeless).collect::<Vec<_>>(), shown, "{line}");
        }
        ran += 1;
    }
    assert_eq!(ran, 2, "a call and a manifest");
}
