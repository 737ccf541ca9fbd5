use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
};

/// An example as a process; killed when this is dropped.
pub(crate) struct Rds {
    child: Child,
    clusters: ChildStdin,
    pub(crate) address: String,
}

impl Rds {
    pub(crate) fn start(program: &str) -> Self {
        let mut command = Command::new(program);
        command.arg("127.0.0.1:0").stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit_once(' ').unwrap().1.to_owned();
        let clusters = child.stdin.take().unwrap();
        Self { child, clusters, address }
    }

    pub(crate) fn route_to(&mut self, cluster: &str) {
        writeln!(self.clusters, "{cluster}").unwrap();
    }
}

impl Drop for Rds {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
