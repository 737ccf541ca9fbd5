//! The smallest useful adapter is small, and a whole program.
#![allow(clippy::unwrap_used)]

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStdout, Command, Output, Stdio},
};

#[test]
fn it_is_at_most_25_lines_of_rust() {
    let lines = include_str!("../src/main.rs").lines().count();
    assert!(lines <= 25, "src/main.rs has {lines} lines");
}

struct Server {
    process: Child,
    address: String,
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
        Self { process, address, _printed: printed }
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
fn it_serves_and_denies_what_is_on_its_list() {
    let server = Server::start();
    let denied = server.call("mallory");
    let text = String::from_utf8(denied.stdout).unwrap();
    assert!(text.contains("on the deny list"), "{text}{}", String::from_utf8(denied.stderr).unwrap());
    let allowed = server.call("alice");
    assert!(allowed.status.success());
    assert!(!String::from_utf8(allowed.stdout).unwrap().contains("on the deny list"));
}
