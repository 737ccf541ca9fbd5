//! The program of the test adapters in a process of its own.

use std::{
    io::{BufRead as _, BufReader, Read},
    net::SocketAddr,
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value as Json;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_test-adapters");

/// A server on free ports; killed if it still runs when this is dropped.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    log: Output,
    _printed: Output,
}

/// The time within which a line is written that a test waits for.
const LINE_LIMIT: Duration = Duration::from_secs(60);

/// The lines of an output, which a thread reads.
struct Output(Receiver<String>);

impl Output {
    fn of(output: impl Read + Send + 'static) -> Self {
        let (sender, lines) = mpsc::sync_channel(1024);
        thread::spawn(move || {
            // Ends with the test, too.
            BufReader::new(output).lines().try_for_each(|line| sender.send(line.unwrap()))
        });
        Self(lines)
    }

    /// Returns the first result of `find` for a line; panics with `what` at the end, and after the limit.
    fn find<T>(&self, what: &str, mut find: impl FnMut(String) -> Option<T>) -> T {
        let end = Instant::now() + LINE_LIMIT;
        loop {
            let line = self.0.recv_timeout(end.saturating_duration_since(Instant::now())).expect(what);
            if let Some(found) = find(line) {
                return found;
            }
        }
    }
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
        let printed = Output::of(process.stdout.take().unwrap());
        let printed_address = |prefix: &str| -> SocketAddr {
            printed.find(prefix, |line| Some(line.strip_prefix(prefix)?.parse().unwrap()))
        };
        let (address, admin) = (printed_address("gRPC on "), printed_address("Admin on http://"));
        let log = Output::of(process.stderr.take().unwrap());
        Self { process, address, admin, log, _printed: printed }
    }

    /// Returns the next line of the log with a text.
    pub(crate) fn line(&mut self, text: &str) -> String {
        self.log.find(text, |line| line.contains(text).then_some(line))
    }

    /// Returns the next event of a JSON log with a message. Every line before it is JSON.
    pub(crate) fn event(&mut self, message: &str) -> Json {
        self.log.find(message, |line| {
            let event: Json = serde_json::from_str(&line).expect(&line);
            (event["fields"]["message"] == message).then_some(event)
        })
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
