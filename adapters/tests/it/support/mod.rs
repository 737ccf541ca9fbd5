//! The binary in a process of its own.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod envoy;
pub(crate) mod http;
pub(crate) mod load;
pub(crate) mod mixer;
pub(crate) mod page;
pub(crate) mod recorder;

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, ChildStdout, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value as Json;
pub(crate) use test_debian as debian;

/// The binary, or the one of `TESTED_PROGRAM`, without the environment of the tests.
pub(crate) fn binary() -> Command {
    let tested = std::env::var_os("TESTED_PROGRAM");
    let mut command = Command::new(tested.unwrap_or_else(|| env!("CARGO_BIN_EXE_mixer-adapter").into()));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MIXER_ADAPTER_")) {
        command.env_remove(name);
    }
    command
}

/// How a command of the binary ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

pub(crate) fn run(arguments: &[&str]) -> Ran {
    binary().args(arguments).stdin(Stdio::null()).output().unwrap().into()
}

/// Polls for up to a minute, and fails if there is still nothing.
pub(crate) fn eventually<T>(what: &str, poll: impl FnMut() -> Option<T>) -> T {
    eventually_within(Duration::from_secs(60), what, poll)
}

pub(crate) fn eventually_within<T>(limit: Duration, what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = poll() {
            return found;
        }
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        #[expect(clippy::disallowed_methods, reason = "another process is polled")]
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// `call` of whatever is served at that address.
pub(crate) fn call(address: &str, arguments: &[&str]) -> Ran {
    run(&[&["call", "--address", address], arguments].concat())
}

/// `serve` on free ports; killed where it still runs when this is dropped.
pub(crate) struct Server {
    pub(crate) grpc: String,
    pub(crate) admin: String,
    pub(crate) child: Child,
    _stdout: BufReader<ChildStdout>,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_and_print(arguments).0
    }

    /// The same, with its output at the start.
    pub(crate) fn start_and_print(arguments: &[&str]) -> (Self, String) {
        Self::start_on("127.0.0.1:0", arguments)
    }

    /// The same, both ports on that address.
    pub(crate) fn start_on(address: &str, arguments: &[&str]) -> (Self, String) {
        let ports = ["serve", "--listen", address, "--admin", address, "--log", "error"];
        Self::spawn(binary().args(ports).args(arguments))
    }

    /// The same, of a command that is complete.
    pub(crate) fn spawn(serve: &mut Command) -> (Self, String) {
        let mut child = serve.stdout(Stdio::piped()).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut printed = String::new();
        let mut read = |before: &str| {
            loop {
                let start = printed.len();
                assert!(stdout.read_line(&mut printed).unwrap() > 0, "the server printed no line {before:?}");
                if let Some(address) = printed[start..].strip_prefix(before) {
                    return address.trim().to_owned();
                }
            }
        };
        let (grpc, admin) = (read("gRPC on "), read("Admin on http"));
        let admin = admin.trim_start_matches('s').trim_start_matches("://").to_owned();
        read("Try ");
        (Self { grpc, admin, child, _stdout: stdout }, printed)
    }

    pub(crate) fn call(&self, arguments: &[&str]) -> Ran {
        call(&self.grpc, arguments)
    }

    /// The answer of the admin port, with its headers.
    pub(crate) fn get(&self, path: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"))
    }

    /// Waits until what the admin port answers has that text.
    pub(crate) fn until(&self, path: &str, text: &str) {
        eventually(&format!("{path} has {text}"), || self.get(path).contains(text).then_some(()));
    }

    /// The answer of the admin port to JSON, with its headers.
    pub(crate) fn post(&self, path: &str, json: &str) -> String {
        let length = json.len();
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{json}"
        ))
    }

    /// The answer of the admin port to a raw request.
    pub(crate) fn send(&self, request: &str) -> String {
        let port = self.admin.rsplit_once(':').unwrap().1;
        let mut stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }
}

/// Sends a signal to a process that the test started.
pub(crate) fn signal(process: u32, name: &str) {
    let process = process.to_string();
    assert!(Command::new("kill").args([&format!("-{name}"), &process]).status().unwrap().success());
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
