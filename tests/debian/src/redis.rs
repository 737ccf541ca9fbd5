//! A Redis of its own for a test.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// A redis-server on a port of 127.0.0.1, which ends with this.
#[derive(Debug)]
pub struct Redis {
    program: PathBuf,
    arguments: Vec<String>,
    port: u16,
    folder: tempfile::TempDir,
    child: Child,
}

impl Redis {
    /// Starts a server; `None` if it cannot be installed.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Starts a server with more arguments.
    pub fn start_with(arguments: &[&str]) -> Option<Self> {
        // The package redis-server would start a server. This program is one, too, by the name that it is started with.
        let program = super::program("redis-check-rdb", "redis-tools")?;
        let arguments: Vec<String> = arguments.iter().copied().map(str::to_owned).collect();
        let port = free_port();
        let folder = tempfile::tempdir().unwrap();
        let child = spawn(&program, port, &folder, &arguments);
        let redis = Self { program, arguments, port, folder, child };
        redis.wait();
        Some(redis)
    }

    /// Starts three nodes of a cluster, each with a third of the slots.
    pub fn start_cluster() -> Option<[Self; 3]> {
        let node = || {
            let bus = free_port().to_string();
            let node = Self::start_with(&["--cluster-enabled", "yes", "--cluster-port", &bus])?;
            Some((node, bus))
        };
        let nodes = [node()?, node()?, node()?];
        // Nodes with the same epoch choose others later, and a slot that moves meanwhile has two owners for good.
        for ((node, _), epoch) in nodes.iter().zip(["1", "2", "3"]) {
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", epoch]);
        }
        for ((node, bus), slots) in nodes.iter().zip([["0", "5460"], ["5461", "10922"], ["10923", "16383"]]) {
            node.command(&["CLUSTER", "ADDSLOTSRANGE", slots[0], slots[1]]);
            nodes[0].0.command(&["CLUSTER", "MEET", "127.0.0.1", &node.port.to_string(), bus]);
        }
        let nodes = nodes.map(|(node, _)| node);
        let is_formed = |node: &Self| {
            let info = node.command(&["CLUSTER", "INFO"]);
            info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
        };
        wait_until("the cluster forms", || nodes.iter().all(is_formed));
        Some(nodes)
    }

    /// Starts a Sentinel that watches a master alone.
    pub fn start_sentinel(master: &str, port: u16) -> Option<Self> {
        Self::start_sentinel_with(master, port, "")
    }

    /// Starts a Sentinel with more lines of its configuration.
    pub fn start_sentinel_with(master: &str, port: u16, lines: &str) -> Option<Self> {
        let program = super::program("redis-check-rdb", "redis-tools")?;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sentinel.conf");
        let configuration = format!(
            "sentinel monitor {master} 127.0.0.1 {port} 1\nsentinel down-after-milliseconds {master} 500\n\
             sentinel failover-timeout {master} 2000\n{lines}"
        );
        std::fs::write(&path, configuration).unwrap();
        let arguments = vec![path.to_str().unwrap().to_owned(), "--sentinel".to_owned()];
        let port = free_port();
        let child = spawn(&program, port, &folder, &arguments);
        let sentinel = Self { program, arguments, port, folder, child };
        sentinel.wait();
        Some(sentinel)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs a command, and returns its answer as the protocol has it.
    pub fn command(&self, words: &[&str]) -> String {
        self.try_command(words).unwrap()
    }

    fn try_command(&self, words: &[&str]) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let mut command = format!("*{}\r\n", words.len());
        for word in words {
            command.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        // The server closes the connection after QUIT. A Sentinel does not know it, and reads the end of the stream.
        let quits = !self.arguments.iter().any(|argument| argument == "--sentinel");
        if quits {
            command.push_str("*1\r\n$4\r\nQUIT\r\n");
        }
        stream.write_all(command.as_bytes())?;
        if !quits {
            stream.shutdown(Shutdown::Write)?;
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.strip_suffix("+OK\r\n").filter(|_| quits).unwrap_or(&answer).to_owned())
    }

    /// Stops the process until it is resumed, so that connections stay and nothing answers.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        assert!(
            Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success()
        );
    }

    /// Ends the process at once, without saving anything.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts an empty server on the same port, after `kill`.
    pub fn restart(&mut self) {
        self.child = spawn(&self.program, self.port, &self.folder, &self.arguments);
        self.wait();
    }

    fn wait(&self) {
        wait_until(&format!("the Redis on port {} answers", self.port), || {
            self.try_command(&["PING"]).is_ok_and(|answer| !answer.is_empty())
        });
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn spawn(program: &PathBuf, port: u16, folder: &tempfile::TempDir, arguments: &[String]) -> Child {
    let mut command = Command::new(program);
    // The configuration file of a Sentinel is the first argument.
    command.arg0("redis-server").args(arguments).args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
    command.args(["--save", "", "--appendonly", "no", "--dir"]).arg(folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        #[expect(clippy::disallowed_methods, reason = "another process is polled")]
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns a port that nothing listens on. It is below the ports that the system gives to clients, which could take it before the server
/// does.
pub fn free_port() -> u16 {
    loop {
        let port = 10_000 + (RandomState::new().build_hasher().finish() % 22_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
