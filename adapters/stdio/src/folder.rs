//! The directory of a log file.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use cap_std::{ambient_authority, fs as confined};
use mixer_adapter_core::adapter::FileLocation;

/// The directory of a log file, as an open directory if the file must stay below a root.
#[derive(Debug)]
pub(super) enum Folder {
    /// By its path, wherever links lead.
    Anywhere(PathBuf),
    /// No name and no link leads out of it.
    Confined(confined::Dir),
}

impl Folder {
    /// Opens the directory of a file, which is created if necessary.
    pub(super) fn of(location: &FileLocation) -> io::Result<Self> {
        let directory = location.path.parent().unwrap_or(Path::new("/"));
        let Some(root) = &location.root else {
            fs::create_dir_all(directory)?;
            return Ok(Self::Anywhere(directory.to_owned()));
        };
        let below = directory.strip_prefix(root).map_err(io::Error::other)?;
        let root = confined::Dir::open_ambient_dir(root, ambient_authority())?;
        if below.as_os_str().is_empty() {
            return Ok(Self::Confined(root));
        }
        let created = root.create_dir_all(below);
        match root.open_dir(below) {
            Ok(directory) => Ok(Self::Confined(directory)),
            Err(error) if leads_out(&error) => Err(link_error()),
            Err(error) => Err(created.err().unwrap_or(error)),
        }
    }

    /// Opens a file to append to, which is created if necessary.
    pub(super) fn append(&self, name: &OsStr) -> io::Result<File> {
        match self {
            Self::Anywhere(path) => File::options().append(true).create(true).open(path.join(name)),
            Self::Confined(directory) => {
                let options = confined::OpenOptions::new().append(true).create(true).to_owned();
                match directory.open_with(name, &options) {
                    Err(error) if leads_out(&error) => Err(link_error()),
                    opened => Ok(opened?.into_std()),
                }
            }
        }
    }

    pub(super) fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        match self {
            Self::Anywhere(path) => fs::rename(path.join(from), path.join(to)),
            Self::Confined(directory) => directory.rename(from, directory, to),
        }
    }

    pub(super) fn contains(&self, name: &OsStr) -> io::Result<bool> {
        match self {
            Self::Anywhere(path) => path.join(name).try_exists(),
            Self::Confined(directory) => directory.try_exists(name),
        }
    }

    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        match self {
            Self::Anywhere(path) => fs::remove_file(path.join(name)),
            Self::Confined(directory) => directory.remove_file(name),
        }
    }

    /// Returns the names in the directory; none if it cannot be read.
    pub(super) fn names(&self) -> Vec<OsString> {
        match self {
            Self::Anywhere(path) => fs::read_dir(path)
                .map(|entries| entries.flatten().map(|entry| entry.file_name()).collect())
                .unwrap_or_default(),
            Self::Confined(directory) => directory
                .entries()
                .map(|entries| entries.flatten().map(|entry| entry.file_name()).collect())
                .unwrap_or_default(),
        }
    }
}

/// Returns whether `cap_std` refused a link out of the root. Such an error does not come from the system.
fn leads_out(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied && error.raw_os_error().is_none()
}

fn link_error() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "a link leads out of --file-root")
}
