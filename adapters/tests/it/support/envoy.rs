//! The real Envoy, which `try` installs below `target` when it is needed first.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::LazyLock,
    time::Duration,
};

use serde_json::Value as Json;

use super::debian;

static PROGRAM: LazyLock<Result<PathBuf, String>> = LazyLock::new(install);

/// The path of an Envoy to test with. Where there is none a line says so, and where one is required, that is a failure.
pub(crate) fn program() -> Option<&'static Path> {
    match &*PROGRAM {
        Ok(path) => Some(path),
        Err(reason) => {
            debian::skip("Envoy", reason);
            None
        }
    }
}

/// Whether there is an Envoy to test with.
pub(crate) fn is_there() -> bool {
    program().is_some()
}

/// The directory that Envoy is installed into.
pub(crate) fn folder() -> String {
    env!("CARGO_TARGET_TMPDIR").to_owned()
}

fn install() -> Result<PathBuf, String> {
    let ran = super::binary().args(["try", "--install", "--envoy-folder", &folder()]).output();
    let ran = ran.map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if ran.status.success() { Ok(text(&ran.stdout).into()) } else { Err(text(&ran.stderr)) }
}

/// A running Envoy; killed when this is dropped.
pub(crate) struct Envoy {
    child: Child,
    admin: String,
    _folder: tempfile::TempDir,
}

impl Envoy {
    /// Starts with a bootstrap that has no admin port yet.
    pub(crate) fn start(bootstrap: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("bootstrap.yaml");
        let admin = folder.path().join("admin");
        let address = "admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}\n";
        fs::write(&config, format!("{address}{bootstrap}")).unwrap();
        let mut child = Command::new(PROGRAM.as_ref().unwrap())
            .arg("-c")
            .arg(&config)
            .arg("--admin-address-path")
            .arg(&admin)
            .args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "error"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let admin = super::eventually("Envoy has an admin port", || {
            assert!(child.try_wait().unwrap().is_none(), "Envoy has ended");
            fs::read_to_string(&admin).ok().filter(|address| !address.is_empty())
        });
        Self { child, admin, _folder: folder }
    }

    /// Returns why Envoy refuses a bootstrap; nothing if it does not.
    pub(crate) fn validate(bootstrap: &str) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("bootstrap.yaml");
        fs::write(&config, bootstrap).unwrap();
        let mut envoy = Command::new(PROGRAM.as_ref().unwrap());
        let ran =
            envoy.args(["--mode", "validate", "--log-level", "warn", "-c"]).arg(&config).output().unwrap();
        (!ran.status.success()).then(|| String::from_utf8_lossy(&ran.stderr).into_owned())
    }

    /// The address of a listener, once there is one of that name.
    pub(crate) fn listener(&self, name: &str) -> String {
        super::eventually("Envoy listens", || {
            let listeners: Json = serde_json::from_str(&get(&self.admin, "/listeners?format=json")?).ok()?;
            let listeners = listeners["listener_statuses"].as_array()?;
            let listener = listeners.iter().find(|listener| listener["name"] == name)?;
            Some(format!("127.0.0.1:{}", listener["local_address"]["socket_address"]["port_value"]))
        })
    }

    /// A counter of Envoy's.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        let page = get(&self.admin, &format!("/stats?filter=^{name}$")).unwrap();
        page.trim().rsplit(' ').next().and_then(|count| count.parse().ok()).unwrap_or_default()
    }

    /// The answer of the admin port.
    pub(crate) fn admin(&self, path: &str) -> String {
        get(&self.admin, path).unwrap()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body of an answer that is OK. Its end is not that of the connection: Envoy waits for its peer to close it.
pub(crate) fn get(address: &str, path: &str) -> Option<String> {
    get_from(address, "localhost", path)
}

/// The same of a host.
pub(crate) fn get_from(address: &str, host: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").ok()?;
    let mut answer = BufReader::new(stream);
    let mut line = || {
        let mut line = String::new();
        answer.read_line(&mut line).ok()?;
        Some(line.trim_end().to_owned())
    };
    line()?.split(' ').nth(1).filter(|status| *status == "200")?;
    let (mut length, mut chunked) = (0, false);
    loop {
        match line()?.to_lowercase().split_once(": ") {
            None => break,
            Some(("content-length", value)) => length = value.parse().ok()?,
            Some(("transfer-encoding", value)) => chunked = value == "chunked",
            Some(_) => {}
        }
    }
    let mut body = String::new();
    while chunked || length > 0 {
        if chunked {
            let mut size = String::new();
            answer.read_line(&mut size).ok()?;
            length = usize::from_str_radix(size.trim_end(), 16).ok()?;
            chunked = length > 0;
        }
        let mut part = vec![0; length];
        answer.read_exact(&mut part).ok()?;
        body.push_str(&String::from_utf8(part).ok()?);
        if chunked {
            answer.read_line(&mut String::new()).ok()?;
        }
        length = 0;
    }
    Some(body)
}
