//! Shells: those that are installed, or else those of Debian's packages, which are downloaded below `target` when one is needed first.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{LazyLock, Mutex},
};

static INSTALLATION: LazyLock<Mutex<()>> = LazyLock::new(Mutex::default);

/// A shell that can be run.
pub(crate) struct Shell {
    program: PathBuf,
    /// Where its packages were extracted, if it is not installed.
    root: Option<PathBuf>,
}

impl Shell {
    /// Finds a shell, or extracts these packages. Without it a line on stderr says so; with REQUIRE_REAL=1 that is a failure.
    pub(crate) fn find(name: &str, packages: &[&str]) -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let installed =
            std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
        if let Some(program) = installed {
            return Some(Self { program, root: None });
        }
        match extract(name, packages) {
            Ok(shell) => Some(shell),
            Err(reason) => {
                let required = std::env::var_os("REQUIRE_REAL").is_some_and(|value| value == "1");
                assert!(!required, "{name} cannot be installed, and REQUIRE_REAL=1 demands it: {reason}");
                // Past what the harness keeps to itself.
                let _ = writeln!(io::stderr(), "skipped, as {name} cannot be installed: {reason}");
                None
            }
        }
    }

    /// The command that runs it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(root) = &self.root {
            let libraries = subfolders(&root.join("usr/lib"));
            command.env("LD_LIBRARY_PATH", std::env::join_paths(libraries).unwrap());
        }
        command
    }

    /// The path of the program.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The folder of its packages, if it is not installed.
    pub(crate) fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }
}

fn extract(name: &str, packages: &[&str]) -> Result<Shell, String> {
    let _one_at_a_time = INSTALLATION.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shells").join(name);
    let found = || {
        ["bin", "usr/bin"].map(|folder| root.join(folder).join(name)).into_iter().find(|file| file.is_file())
    };
    if found().is_none() {
        fs::create_dir_all(&root).map_err(|error| error.to_string())?;
        run(Command::new("apt-get").arg("download").args(packages).current_dir(&root))?;
        for file in fs::read_dir(&root).map_err(|error| error.to_string())?.flatten() {
            if file.path().extension().is_some_and(|extension| extension == "deb") {
                run(Command::new("dpkg-deb").arg("-x").arg(file.path()).arg(&root))?;
            }
        }
    }
    let program = found().ok_or_else(|| format!("the packages {packages:?} do not contain it"))?;
    Ok(Shell { program, root: Some(root) })
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{command:?}: {error}"))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?}: {stderr}")) }
}

fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}
