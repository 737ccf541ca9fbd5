use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use mixer_adapter_net::open_file;
use walkdir::{DirEntry, WalkDir};

use crate::{
    Parsed, ValidationError, parse,
    text_format::{self, TextFormatError, is_text_format},
};

/// The maximum size of a file in bytes, also of other files with configuration.
pub(crate) const MAX_FILE: u64 = 64 << 20;
/// The maximum number of files.
const MAX_FILES: usize = 100_000;
/// The maximum number of resources.
const MAX_RESOURCES: usize = 1_000_000;

/// Reads the files of a directory and its subdirectories in the order of their names, or one file of any name.
///
/// The files are `*.yaml`, `*.yml`, `*.json`, and those in the text format of protobuf. A file that cannot be read is a
/// fault, and does not affect others.
///
/// Names that begin with a dot are ignored, and so are tests, `*.test.yaml`. Therefore a mounted ConfigMap, whose files
/// are links into `..data`, is read once.
pub fn read(root: &Path, default_namespace: &str) -> Parsed {
    let mut all = Parsed::default();
    let (files, faults) = list(root);
    all.faults = faults;
    for path in files {
        let source: Arc<str> = path.display().to_string().into();
        let text = match read_document(&path) {
            Ok(text) => text,
            Err(error) => {
                all.faults.push(ValidationError::error(error.to_string()).at(&source, 0));
                continue;
            }
        };
        let parsed = parse(&text, &source, default_namespace);
        if all.resources.len() + parsed.resources.len() > MAX_RESOURCES {
            let reason =
                format!("more than {MAX_RESOURCES} resources; {source} and later files are not read");
            all.faults.push(ValidationError::error(reason).at(&root.display().to_string().into(), 0));
            break;
        }
        all.resources.extend(parsed.resources);
        all.faults.extend(parsed.faults);
    }
    all
}

/// Returns the files to read, in order, and the faults of the directory.
pub(super) fn list(root: &Path) -> (Vec<PathBuf>, Vec<ValidationError>) {
    let mut files = Vec::new();
    let mut faults = Vec::new();
    let walk = WalkDir::new(root).follow_links(true).sort_by_file_name();
    for entry in walk.into_iter().filter_entry(|entry| entry.depth() == 0 || !is_hidden(entry)) {
        match entry {
            Ok(entry)
                if entry.file_type().is_file() && (entry.depth() == 0 || is_configuration(entry.path())) =>
            {
                if files.len() == MAX_FILES {
                    let reason = format!("more than {MAX_FILES} files; the rest is not read");
                    faults.push(ValidationError::error(reason).at(&root.display().to_string().into(), 0));
                    break;
                }
                files.push(entry.into_path());
            }
            Ok(entry) => faults.extend(entry.file_type().is_file().then(|| ignored(entry.path())).flatten()),
            Err(error) => {
                let path = error.path().unwrap_or(root).display().to_string();
                let reason = match error.io_error() {
                    Some(io) => format!("cannot be read: {io}"),
                    None => format!("cannot be read: {error}"),
                };
                faults.push(ValidationError::error(reason).at(&path.into(), 0));
            }
        }
    }
    (files, faults)
}

/// Returns a warning about a file that is configuration by its name but for the case of letters.
fn ignored(path: &Path) -> Option<ValidationError> {
    let lower = path.with_extension(path.extension()?.to_ascii_lowercase());
    (lower != path && is_configuration(&lower)).then(|| {
        let name = lower.file_name().unwrap_or_default().display();
        let reason = format!("not read: extensions of files are in lower case; rename it to {name}");
        ValidationError::warning(reason).at(&path.display().to_string().into(), 0)
    })
}

fn is_hidden(entry: &DirEntry) -> bool {
    entry.file_name().as_encoded_bytes().starts_with(b".")
}

/// Returns the test files of a directory and its subdirectories in the order of their names: `*.test.yaml`,
/// `*.test.yml` and `*.test.json`. They are not configuration.
pub fn test_files(root: &Path) -> Vec<PathBuf> {
    let walk = WalkDir::new(root).follow_links(true).sort_by_file_name().into_iter();
    let visible = walk.filter_entry(|entry| entry.depth() == 0 || !is_hidden(entry)).filter_map(Result::ok);
    let files = visible.filter(|entry| entry.file_type().is_file()).map(DirEntry::into_path);
    files.filter(|path| is_text(path) && is_test(path)).take(MAX_FILES).collect()
}

/// Returns whether a file has tests of a configuration, by its name.
pub fn is_test(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem.as_encoded_bytes().ends_with(b".test"))
}

fn is_configuration(path: &Path) -> bool {
    (is_text(path) || is_text_format(path)) && !is_test(path)
}

fn is_text(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml" || extension == "json")
}

/// The reason why a file is not read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("cannot be opened: {0}")]
    Open(io::Error),
    #[error("cannot be read: {0}")]
    Read(io::Error),
    #[error("is longer than {} MiB", MAX_FILE >> 20)]
    TooLong,
    #[error("is not UTF-8: {0}")]
    Utf8(#[from] std::string::FromUtf8Error),
    #[error("cannot be read: {0}")]
    TextFormat(#[from] TextFormatError),
}

/// Reads a file as YAML or JSON, whatever its format.
fn read_document(path: &Path) -> Result<String, ReadError> {
    let text = read_text(path)?;
    match is_text_format(path) {
        true => Ok(text_format::to_json(&text)?.to_string()),
        false => Ok(text),
    }
}

fn read_text(path: &Path) -> Result<String, ReadError> {
    let mut bytes = Vec::new();
    let file = open_file(path).map_err(ReadError::Open)?;
    file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(ReadError::Read)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(ReadError::TooLong);
    }
    Ok(String::from_utf8(bytes)?)
}
