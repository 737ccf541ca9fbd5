//! The folder of generated files.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::Error;

/// The packages that this build script has generated.
static PACKAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The folder that generated files are written to.
pub(crate) struct Output(PathBuf);

impl Output {
    /// Returns `OUT_DIR`, which cargo sets for build scripts.
    pub(crate) fn of_build_script() -> Result<Self, Error> {
        env::var_os("OUT_DIR").map(|folder| Self(folder.into())).ok_or(Error::NoOutDir)
    }

    #[cfg(test)]
    pub(crate) fn to(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.0
    }

    /// Writes the Rust of a package for `include_proto!`, which finds it by an environment variable of the package.
    #[expect(clippy::print_stdout, reason = "instructions to cargo")]
    pub(crate) fn write_package(&self, package: &str, code: String) -> Result<(), Error> {
        let name = format!("{package}.rs");
        self.write(&name, code)?;
        let mut packages = PACKAGES.lock().unwrap_or_else(PoisonError::into_inner);
        packages.push(format!("{package:?}"));
        println!("cargo::rustc-env=MIXER_ADAPTER_PACKAGE_{package}={}", self.0.join(name).display());
        println!("cargo::rustc-env=MIXER_ADAPTER_PACKAGES={}", packages.join(", "));
        Ok(())
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<(), Error> {
        let path = self.0.join(name);
        fs::write(&path, content).map_err(|source| Error::Write { path, source })
    }
}
