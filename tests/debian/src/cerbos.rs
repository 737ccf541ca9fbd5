//! A Cerbos of its own for a test.

use std::{
    fs,
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::{free_port, npm_program};

/// A decision service on a port of 127.0.0.1, which ends with this.
#[derive(Debug)]
pub struct Cerbos {
    child: Child,
    port: u16,
    _policies: tempfile::TempDir,
}

/// The rules of the todo application, with which the AuthZEN working group tests decision services together.
const TODO: &str = include_str!("todo.yaml");
const USER: &str = include_str!("user.yaml");

impl Cerbos {
    /// Starts one that decides about the todo application; `None` if it cannot be installed.
    pub fn start() -> Option<Self> {
        let program = npm_program("@cerbos/cerbos-linux-x64", "0.55.0", "cerbos-linux-x64")?;
        let policies = tempfile::tempdir().unwrap();
        for (name, policy) in [("todo.yaml", TODO), ("user.yaml", USER)] {
            fs::write(policies.path().join(name), policy).unwrap();
        }
        let [port, grpc] = [free_port(), free_port()];
        let settings = [
            format!("server.httpListenAddr=127.0.0.1:{port}"),
            format!("server.grpcListenAddr=127.0.0.1:{grpc}"),
            "storage.driver=disk".to_owned(),
            format!("storage.disk.directory={}", policies.path().display()),
            "telemetry.disabled=true".to_owned(),
        ];
        let mut command = Command::new(program);
        command.arg("server").args(settings.iter().flat_map(|setting| ["--set", setting]));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let cerbos = Self { child: command.spawn().unwrap(), port, _policies: policies };
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "the Cerbos on port {port} does not start");
            #[expect(clippy::disallowed_methods, reason = "another process is polled")]
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(cerbos)
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Cerbos {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
