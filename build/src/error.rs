use std::{
    fmt, io,
    path::{Path, PathBuf},
};

use crate::Refusal;

/// Why nothing was generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The path does not end in a file name in UTF-8.
    #[error("{}: not the path of a proto file: it must end in a name in UTF-8", path.display())]
    FileName {
        /// The path.
        path: PathBuf,
    },
    /// Not protobuf: file, line, column and reason in one text.
    #[error("{0}")]
    Compile(String),
    /// Protobuf, but not what a template or an adapter's configuration may be: all faults found.
    #[error("{}", Lines(.0))]
    Refused(Vec<Refusal>),
    /// prost cannot make Rust of it.
    #[error("no Rust can be generated: {0}")]
    Rust(#[source] io::Error),
    /// A build script's variable is missing: called from elsewhere.
    #[error("OUT_DIR is not set: call this from build.rs")]
    NoOutDir,
}

impl Error {
    /// The compiler names files as imports do; `folder` is where the author's lie.
    pub(crate) fn compile(folder: &Path, error: &protox::Error) -> Self {
        // Its debug text is `file:line:column: reason`; its display text is the reason only.
        let text = format!("{error:?}");
        match error.file() {
            Some(name) if text.starts_with(name) && folder.join(name).exists() => {
                Self::Compile(folder.join(text).display().to_string())
            }
            _ => Self::Compile(text),
        }
    }
}

struct Lines<'a>(&'a [Refusal]);

impl fmt::Display for Lines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, refusal) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            refusal.fmt(f)?;
        }
        Ok(())
    }
}
