//! Programs of Debian and of npm, which are installed when a test needs them first.
#![allow(clippy::unwrap_used, missing_docs)]

mod cerbos;
mod npm;
mod redis;

pub use cerbos::Cerbos;
pub use npm::npm_program;
pub use redis::{Redis, free_port};

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The path of a program, from the package that has it. Where there is none a line says so, and where one is required
/// (`REQUIRE_REAL=1`), that is a failure.
pub fn program(name: &str, package: &str) -> Option<PathBuf> {
    match find(name).map_or_else(|| install(name, package), Ok) {
        Ok(path) => Some(path),
        Err(reason) => {
            skip(name, &reason);
            None
        }
    }
}

/// Says that tests with a program are skipped; fails if it is required.
pub fn skip(name: &str, reason: &str) {
    let required = std::env::var_os("REQUIRE_REAL").is_some_and(|value| value == "1");
    assert!(!required, "{name} cannot be installed, and REQUIRE_REAL=1 demands it: {reason}");
    // Past what the harness captures.
    let _ = writeln!(io::stderr(), "skipped, as {name} cannot be installed: {reason}");
}

/// Like [`program`], from a package that is unpacked below `target`: installing it would start a server.
pub fn unpacked(name: &str, package: &str) -> Option<PathBuf> {
    match find(name).map_or_else(|| unpack(name, package), Ok) {
        Ok(path) => Some(path),
        Err(reason) => {
            skip(name, &reason);
            None
        }
    }
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}

fn install(name: &str, package: &str) -> Result<PathBuf, String> {
    let packages = ["install", "-y", "--no-install-recommends", package];
    // The lists of a fresh machine are empty or old.
    let apt = |arguments: &[&str]| apt_get(arguments, Path::new("/"));
    apt(&packages).or_else(|_| apt(&["update"]).and_then(|()| apt(&packages)))?;
    find(name).ok_or_else(|| format!("Debian's package {package} has no program {name}"))
}

fn unpack(name: &str, package: &str) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tmp/debian");
    let home = folder.join(package);
    let program = home.join("usr/bin").join(name);
    if program.is_file() {
        return Ok(program);
    }
    let failed = |error: io::Error| error.to_string();
    fs::create_dir_all(&folder).map_err(failed)?;
    // Made apart and renamed, so that the directory is complete or absent also if several tests unpack at the same time.
    let temporary = tempfile::tempdir_in(&folder).map_err(failed)?;
    let download = || apt_get(&["download", package], temporary.path());
    download().or_else(|_| apt_get(&["update"], temporary.path()).and_then(|()| download()))?;
    let files = fs::read_dir(temporary.path()).map_err(failed)?;
    let archive =
        files.flatten().map(|file| file.path()).find(|path| path.extension() == Some("deb".as_ref()));
    let archive = archive.ok_or_else(|| format!("apt-get has not downloaded {package}"))?;
    let unpacked = temporary.path().join("unpacked");
    run(Command::new("dpkg-deb").arg("--extract").arg(archive).arg(&unpacked))?;
    match fs::rename(&unpacked, &home) {
        // Another test was first.
        Err(_) if program.is_file() => {}
        renamed => renamed.map_err(failed)?,
    }
    if program.is_file() {
        Ok(program)
    } else {
        Err(format!("Debian's package {package} has no program {name}"))
    }
}

/// Runs apt-get in a directory. Tests in other processes may do so at the same time.
fn apt_get(arguments: &[&str], directory: &Path) -> Result<(), String> {
    let options = ["-qq", "-o", "DPkg::Lock::Timeout=600"];
    let mut command = Command::new("apt-get");
    run(command.args(options).args(arguments).current_dir(directory).env("DEBIAN_FRONTEND", "noninteractive"))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}
