//! The folder of generated files.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::Error;

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

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<(), Error> {
        let path = self.0.join(name);
        fs::write(&path, content).map_err(|source| Error::Write { path, source })
    }
}
