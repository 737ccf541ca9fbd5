use std::{
    error::Error,
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use serde_json::Value as Json;
use walkdir::{DirEntry, WalkDir};

use crate::validation_error::ValidationError;

/// The maximum size of a file in bytes, also of other files with configuration.
pub const MAX_FILE: u64 = 64 << 20;
/// The maximum number of files.
const MAX_FILES: usize = 100_000;

/// A format of files that are neither YAML nor JSON.
#[derive(Clone, Copy, Debug)]
pub struct FileFormat {
    /// The extensions of the names of such files, without dots.
    pub extensions: &'static [&'static str],
    /// Converts the text of a file to the equivalent JSON.
    pub to_json: fn(&str) -> Result<Json, Box<dyn Error + Send + Sync>>,
}

/// Returns the files to read, in order, and the faults of the directory.
pub(super) fn list(root: &Path, formats: &[FileFormat]) -> (Vec<PathBuf>, Vec<ValidationError>) {
    let mut files = Vec::new();
    let mut faults = Vec::new();
    let walk = WalkDir::new(root).follow_links(true).sort_by_file_name();
    for entry in walk.into_iter().filter_entry(|entry| entry.depth() == 0 || !is_hidden(entry)) {
        match entry {
            Ok(entry)
                if entry.file_type().is_file()
                    && (entry.depth() == 0 || is_configuration(entry.path(), formats)) =>
            {
                if files.len() == MAX_FILES {
                    let reason = format!("more than {MAX_FILES} files; the rest is not read");
                    faults.push(ValidationError::error(reason).in_file(root));
                    break;
                }
                files.push(entry.into_path());
            }
            Ok(entry) => {
                faults.extend(entry.file_type().is_file().then(|| ignored(entry.path(), formats)).flatten())
            }
            Err(error) => {
                let path = error.path().unwrap_or(root);
                let reason = match error.io_error() {
                    Some(io) => format!("cannot be read: {io}"),
                    None => format!("cannot be read: {error}"),
                };
                faults.push(ValidationError::error(reason).in_file(path));
            }
        }
    }
    (files, faults)
}

/// Returns a warning about a file that is ignored only because of the case of its name.
fn ignored(path: &Path, formats: &[FileFormat]) -> Option<ValidationError> {
    let lower = path.with_extension(path.extension()?.to_ascii_lowercase());
    (lower != path && is_configuration(&lower, formats)).then(|| {
        let name = lower.file_name().unwrap_or_default().display();
        let reason = format!("not read: extensions of files are in lower case; rename it to {name}");
        ValidationError::warning(reason).in_file(path)
    })
}

fn is_hidden(entry: &DirEntry) -> bool {
    entry.file_name().as_encoded_bytes().starts_with(b".")
}

/// Returns the YAML and JSON files of a directory and its subdirectories in the order of their names, tests included.
pub fn text_files(root: &Path) -> Vec<PathBuf> {
    let walk = WalkDir::new(root).follow_links(true).sort_by_file_name().into_iter();
    let visible = walk.filter_entry(|entry| entry.depth() == 0 || !is_hidden(entry)).filter_map(Result::ok);
    let files = visible.filter(|entry| entry.file_type().is_file()).map(DirEntry::into_path);
    files.filter(|path| is_text(path)).take(MAX_FILES).collect()
}

/// Returns whether a file has tests of a configuration, by its name: `*.test.yaml`, `*.test.yml` or `*.test.json`. Such a file is not
/// configuration.
pub fn is_test(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem.as_encoded_bytes().ends_with(b".test"))
}

fn is_configuration(path: &Path, formats: &[FileFormat]) -> bool {
    (is_text(path) || format_of(path, formats).is_some()) && !is_test(path)
}

fn format_of<'a>(path: &Path, formats: &'a [FileFormat]) -> Option<&'a FileFormat> {
    let extension = path.extension()?.to_str()?;
    formats.iter().find(|format| format.extensions.contains(&extension))
}

fn is_text(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml" || extension == "json")
}

/// The reason why a file is not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error("cannot be opened: {0}")]
    Open(io::Error),
    #[error("cannot be read: {0}")]
    Read(io::Error),
    #[error("is longer than {} MiB", MAX_FILE >> 20)]
    TooLong,
    #[error("is not UTF-8: {0}")]
    Utf8(#[from] std::string::FromUtf8Error),
    #[error("cannot be read: {0}")]
    Format(Box<dyn Error + Send + Sync>),
}

/// Reads a file as YAML or JSON, whatever its format.
pub(super) fn read_document(path: &Path, formats: &[FileFormat]) -> Result<String, ReadError> {
    let text = read_text(path)?;
    match format_of(path, formats) {
        Some(format) => Ok((format.to_json)(&text).map_err(ReadError::Format)?.to_string()),
        None => Ok(text),
    }
}

fn read_text(path: &Path) -> Result<String, ReadError> {
    let file = open_file(path).map_err(ReadError::Open)?;
    let length = file.metadata().map_or(0, |metadata| metadata.len()).min(MAX_FILE);
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default() + 1);
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(ReadError::Read)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(ReadError::TooLong);
    }
    Ok(String::from_utf8(bytes)?)
}

/// Opens a regular file. Links are followed, because mounted config maps consist of links.
fn open_file(path: &Path) -> io::Result<File> {
    // Opening a pipe would wait for its other end.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    match (kind.is_file(), kind.is_dir()) {
        (true, _) => Ok(file),
        (_, true) => Err(io::ErrorKind::IsADirectory.into()),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a pipe or a device, not a regular file")),
    }
}
