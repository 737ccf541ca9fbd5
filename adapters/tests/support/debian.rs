//! Programs of Debian, which are installed when a test needs them first.

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::{Command, Stdio},
};

/// The path of a program, from the package that has it. Where there is none a line says so, and where one is required
/// (`REQUIRE_REAL=1`), that is a failure.
pub(crate) fn program(name: &str, package: &str) -> Option<PathBuf> {
    match find(name).map_or_else(|| install(name, package), Ok) {
        Ok(path) => Some(path),
        Err(reason) => {
            skip(name, &reason);
            None
        }
    }
}

/// Says that tests with a program are skipped; fails if it is required.
pub(crate) fn skip(name: &str, reason: &str) {
    let required = std::env::var_os("REQUIRE_REAL").is_some_and(|value| value == "1");
    assert!(!required, "{name} cannot be installed, and REQUIRE_REAL=1 demands it: {reason}");
    // Past what the harness captures.
    let _ = writeln!(io::stderr(), "skipped, as {name} cannot be installed: {reason}");
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}

fn install(name: &str, package: &str) -> Result<PathBuf, String> {
    // Tests in other processes may install at the same time.
    let apt = |arguments: &[&str]| {
        let command = Command::new("apt-get")
            .args(["-qq", "-o", "DPkg::Lock::Timeout=600"])
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null())
            .output()
            .map_err(|error| format!("apt-get: {error}"))?;
        match command.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&command.stderr).trim().to_owned()),
        }
    };
    let packages = ["install", "-y", "--no-install-recommends", package];
    // The lists of a fresh machine are empty or old.
    apt(&packages).or_else(|_| apt(&["update"]).and_then(|()| apt(&packages)))?;
    find(name).ok_or_else(|| format!("Debian's package {package} has no program {name}"))
}
