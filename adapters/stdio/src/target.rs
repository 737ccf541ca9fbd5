//! Targets of lines.

use std::fmt;

use mixer_adapter_core::adapter::FileLocation;

/// The stream or file that lines are written to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    Stdout,
    Stderr,
    /// By its absolute path, and the directory that it must be in.
    File(FileLocation),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::Stderr => f.write_str("standard error"),
            Self::File(location) => location.fmt(f),
        }
    }
}
