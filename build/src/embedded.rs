//! The protos that templates and adapter configurations import, embedded in the generator.

use protox::{
    Error,
    file::{File, FileResolver},
};

macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../proto/", $name)))),*]
    };
}

const FILES: &[(&str, &str)] = embedded![
    "google/rpc/status.proto",
    "mixer/adapter/model/v1beta1/check.proto",
    "mixer/adapter/model/v1beta1/extensions.proto",
    "mixer/adapter/model/v1beta1/quota.proto",
    "mixer/adapter/model/v1beta1/report.proto",
    "mixer_adapter/versioning/v1/versioning.proto",
    "policy/v1beta1/type.proto",
    "policy/v1beta1/value_type.proto",
];

/// Returns the import paths of all embedded files.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// Resolves imports of embedded files.
pub(crate) struct Embedded;

impl FileResolver for Embedded {
    fn open_file(&self, name: &str) -> Result<File, Error> {
        InMemory(FILES.to_vec()).open_file(name)
    }
}

/// Resolves imports of files given as pairs of import path and text.
pub(crate) struct InMemory<T>(pub(crate) Vec<(T, T)>);

impl<T: AsRef<str>> FileResolver for InMemory<T> {
    fn open_file(&self, name: &str) -> Result<File, Error> {
        match self.0.iter().find(|(known, _)| known.as_ref() == name) {
            Some((_, text)) => File::from_source(name, text.as_ref()),
            None => Err(Error::file_not_found(name)),
        }
    }
}
