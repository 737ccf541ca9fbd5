//! Sets of protos: sources or compiled descriptors.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use prost_reflect::{DescriptorPool, FileDescriptor};
use walkdir::WalkDir;

/// Protos to check, with everything they import.
#[derive(Clone, Debug)]
pub struct ProtoSet {
    pool: DescriptorPool,
    /// The names of the files that are checked; the others are imports.
    names: BTreeSet<String>,
}

/// A failure to read protos.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtoSetError {
    /// A file or folder cannot be read.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A folder has no proto.
    #[error("{}: no file ends in .proto", .0.display())]
    Empty(PathBuf),
    /// The protos do not compile. The text contains file, line, column and reason.
    #[error(transparent)]
    Compile(#[from] mixer_adapter_build::Error),
    /// A file is not a `FileDescriptorSet`, or lacks imports.
    #[error("{}: not a set of descriptors (protoc --include_imports --descriptor_set_out): {source}", path.display())]
    Descriptors {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: prost_reflect::DescriptorError,
    },
}

impl ProtoSet {
    /// Reads protos.
    ///
    /// A path is a folder, whose `.proto` files are named by their paths below it; a single `.proto` file, named by its path below the
    /// first of `includes` that contains it, else by its file name; or a file with a `FileDescriptorSet`. Imports are looked
    /// up in the folders and in `includes`, and then among those embedded (`google/protobuf/*`, Mixer's).
    ///
    /// # Errors
    /// A path cannot be read, or the protos are not valid.
    pub fn open<P: AsRef<Path>>(paths: &[P], includes: &[PathBuf]) -> Result<Self, ProtoSetError> {
        let mut folders = Vec::new();
        let mut names = BTreeSet::new();
        let mut sets = Vec::new();
        for path in paths.iter().map(AsRef::as_ref) {
            let kind = fs::metadata(path).map_err(|source| read_error(path, source))?;
            if kind.is_dir() {
                names.extend(proto_names(path)?);
                folders.push(path.to_owned());
            } else if path.extension().is_some_and(|extension| extension == "proto") {
                let (folder, name) = name_in(path, includes);
                names.insert(name);
                folders.push(folder);
            } else {
                sets.push(path);
            }
        }
        folders.extend_from_slice(includes);
        let list: Vec<&String> = names.iter().collect();
        let mut set = Self { pool: mixer_adapter_build::compile(&folders, &list)?, names };
        for path in sets {
            let bytes = fs::read(path).map_err(|source| read_error(path, source))?;
            set.add_descriptors(&bytes)
                .map_err(|source| ProtoSetError::Descriptors { path: path.to_owned(), source })?;
        }
        Ok(set)
    }

    /// Adds the files of a `FileDescriptorSet`. All of them are checked but Google's.
    fn add_descriptors(&mut self, set: &[u8]) -> Result<(), prost_reflect::DescriptorError> {
        let more = DescriptorPool::decode(set)?;
        self.pool.decode_file_descriptor_set(set)?;
        let names = more.files().filter(|file| !is_googles(file.package_name()));
        self.names.extend(names.map(|file| file.name().to_owned()));
        Ok(())
    }

    /// Returns all descriptors, including imports.
    pub fn pool(&self) -> &DescriptorPool {
        &self.pool
    }

    /// Returns the files that are checked.
    pub(crate) fn files(&self) -> impl Iterator<Item = FileDescriptor> + '_ {
        self.names.iter().filter_map(|name| self.pool.get_file_by_name(name))
    }
}

/// Whether a package is Google's: users do not control its versions.
pub(crate) fn is_googles(package: &str) -> bool {
    package.starts_with("google.") || package == "google"
}

fn proto_names(folder: &Path) -> Result<BTreeSet<String>, ProtoSetError> {
    let mut names = BTreeSet::new();
    for entry in WalkDir::new(folder) {
        let entry = entry.map_err(|error| read_error(folder, error.into()))?;
        if entry.file_type().is_file()
            && entry.path().extension().is_some_and(|extension| extension == "proto")
            && let Some(name) = relative(entry.path(), folder)
        {
            names.insert(name);
        }
    }
    if names.is_empty() {
        return Err(ProtoSetError::Empty(folder.to_owned()));
    }
    Ok(names)
}

/// Returns the folder and the import path of a single file.
fn name_in(path: &Path, includes: &[PathBuf]) -> (PathBuf, String) {
    let below = includes.iter().find_map(|folder| Some((folder.clone(), relative(path, folder)?)));
    below.unwrap_or_else(|| {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
        (folder, name.unwrap_or_default())
    })
}

fn relative(path: &Path, folder: &Path) -> Option<String> {
    let parts = path.strip_prefix(folder).ok()?.components();
    let parts: Vec<_> = parts.map(|part| part.as_os_str().to_string_lossy()).collect();
    Some(parts.join("/"))
}

fn read_error(path: &Path, source: io::Error) -> ProtoSetError {
    ProtoSetError::Read { path: path.to_owned(), source }
}
