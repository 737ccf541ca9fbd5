//! Errors of the generator.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::ProtoError;

/// A failure of the generator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The path does not end in a UTF-8 file name.
    #[error("{}: not the path of a proto file, which must end in a UTF-8 file name", path.display())]
    FileName {
        /// The path.
        path: PathBuf,
    },
    /// The file is not protobuf. The text contains file, line, column and reason.
    #[error("{0}")]
    Compile(String),
    /// The file is not a valid template or adapter configuration. Contains all faults found.
    #[error("{}", lines(.0))]
    Invalid(Vec<ProtoError>),
    /// prost cannot generate Rust.
    #[error("Rust code cannot be generated: {0}")]
    Rust(#[source] io::Error),
    /// The package that is built depends neither on `mixer-adapter` nor on `mixer-adapter-core`.
    #[error(
        "Cargo.toml has none of the crates that generated code uses: add mixer-adapter to the dependencies of a program, or \
         mixer-adapter-core and mixer-adapter-templates to those of a library"
    )]
    NoFramework,
    /// The variable OUT_DIR of build scripts is missing.
    #[error("OUT_DIR is not set: call this from build.rs")]
    NoOutDir,
}

impl Error {
    /// Converts an error of the compiler, which names files as imports do; `folder` contains the author's files.
    pub(crate) fn compile(folder: &Path, error: &protox::Error) -> Self {
        // The debug format is `file:line:column: reason`; the display format is only the reason.
        let text = format!("{error:?}");
        match error.file() {
            Some(name) if text.starts_with(name) && folder.join(name).exists() => {
                Self::Compile(folder.join(text).display().to_string())
            }
            _ => Self::Compile(text),
        }
    }
}

fn lines(errors: &[ProtoError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
