//! Programs from npm.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The path of a program in a package of npm, which is unpacked below `target`; `None` if it cannot be installed.
pub fn npm_program(package: &str, version: &str, file: &str) -> Option<PathBuf> {
    match unpack(package, version, file) {
        Ok(path) => Some(path),
        Err(reason) => {
            super::skip(package, &reason);
            None
        }
    }
}

fn unpack(package: &str, version: &str, file: &str) -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tmp/npm");
    let program = folder.join(package).join(version).join(file);
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    // Made apart and renamed, as in `unpacked`.
    let temporary = tempfile::tempdir_in(&folder).map_err(|error| error.to_string())?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
    super::run(npm.arg(temporary.path()).arg(format!("{package}@{version}")))?;
    let home = folder.join(package).join(version);
    fs::create_dir_all(folder.join(package)).map_err(|error| error.to_string())?;
    match fs::rename(temporary.path().join("node_modules").join(package), home) {
        Err(error) if !program.is_file() => Err(error.to_string()),
        _ => Ok(program),
    }
}
