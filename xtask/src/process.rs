//! Child processes, run from the root of the repository.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

/// Returns the root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Returns a folder for `tool` below the repository's target directory.
pub(crate) fn target(tool: &str) -> PathBuf {
    root().join("target/tools").join(tool)
}

/// Returns the command that runs the cargo which runs this task.
pub(crate) fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or("cargo".into()))
}

/// Returns the command that runs `program` in the root of the repository.
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root());
    command
}

/// Runs a command whose output goes to this process's.
///
/// # Errors
///
/// The command could not be started, or it failed.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(status.success(), "{command:?} failed: {status}");
    Ok(())
}

/// Runs a command and returns its standard output.
///
/// # Errors
///
/// The command could not be started, or it failed.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.stderr(std::process::Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed: {}", output.status);
    Ok(output.stdout)
}
