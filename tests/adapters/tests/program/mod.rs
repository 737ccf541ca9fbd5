//! The program of the test adapters in a process of its own.

use std::{
    io::{BufRead as _, BufReader, Lines},
    net::SocketAddr,
    process::{Child, ChildStderr, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value as Json;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_test-adapters");

/// A server on free ports; killed if it still runs when this is dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    log: Lines<BufReader<ChildStderr>>,
    _printed: Lines<BufReader<ChildStdout>>,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut process = Command::new(PROGRAM)
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(arguments)
            .env_remove("RUST_BACKTRACE")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut printed = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut printed_address = |prefix: &str| -> SocketAddr {
            let address = printed.find_map(|line| Some(line.unwrap().strip_prefix(prefix)?.to_owned()));
            address.unwrap().parse().unwrap()
        };
        let (address, admin) = (printed_address("gRPC on "), printed_address("Admin on http://"));
        let log = BufReader::new(process.stderr.take().unwrap()).lines();
        Self { process, address, admin, log, _printed: printed }
    }

    /// Returns the next line of the log with a text.
    pub(crate) fn line(&mut self, text: &str) -> String {
        self.log.by_ref().map(Result::unwrap).find(|line| line.contains(text)).expect(text)
    }

    /// Returns the next event of a JSON log with a message. Every line before it is JSON.
    pub(crate) fn event(&mut self, message: &str) -> Json {
        let lines = self.log.by_ref().map(Result::unwrap);
        let mut events = lines.map(|line| serde_json::from_str::<Json>(&line).expect(&line));
        events.find(|event| event["fields"]["message"] == message).expect(message)
    }

    pub(crate) fn signal(&self, name: &str) {
        let process = self.process.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &process]).status().unwrap().success());
    }

    /// Waits up to `limit` for the process to end, and returns its exit code.
    pub(crate) fn exit_code_within(&mut self, limit: Duration) -> Option<i32> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < end, "the server still runs after {limit:?}");
            #[expect(clippy::disallowed_methods, reason = "another process is polled")]
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _already_ended = self.process.kill();
        let _status = self.process.wait();
    }
}
