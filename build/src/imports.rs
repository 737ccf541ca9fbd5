//! Resolution of imports.

use protox::{
    Error,
    file::{File, FileResolver},
};

/// The files whose messages `mixer-adapter-core` has. Configurations can import them.
pub const CORE: &[&str] = &[
    "google/rpc/error_details.proto",
    "google/rpc/status.proto",
    "mixer/adapter/model/v1beta1/check.proto",
    "mixer/adapter/model/v1beta1/extensions.proto",
    "mixer/adapter/model/v1beta1/quota.proto",
    "mixer/adapter/model/v1beta1/report.proto",
    "mixer_adapter/versioning/v1/versioning.proto",
    "policy/v1beta1/http_response.proto",
    "policy/v1beta1/type.proto",
    "policy/v1beta1/value_type.proto",
];

/// Resolves imports of the files of `mixer-adapter-proto`.
pub(crate) struct Published;

impl FileResolver for Published {
    fn open_file(&self, name: &str) -> Result<File, Error> {
        let text = mixer_adapter_proto::resolve(name).ok_or_else(|| Error::file_not_found(name))?;
        File::from_source(name, text)
    }
}

/// Resolves the import of one file, given as its path and text.
pub(crate) struct InMemory(pub(crate) String, pub(crate) String);

impl FileResolver for InMemory {
    fn open_file(&self, name: &str) -> Result<File, Error> {
        let Self(path, text) = self;
        if name == path { File::from_source(name, text) } else { Err(Error::file_not_found(name)) }
    }
}
