use std::path::{Path, PathBuf};

use mixer_adapter_core::adapter::ConfigErrors;
use mixer_adapter_net::read_file;

/// Reads the file that a field of the configuration names.
pub(super) fn read(field: &str, path: &Path) -> Result<Vec<u8>, ConfigErrors> {
    read_file(path)
        .map_err(|error| ConfigErrors::single(field, format!("{} cannot be read: {error}", path.display())))
}

/// Like [`read`], off the threads that serve calls.
pub(super) async fn read_blocking(field: &'static str, path: PathBuf) -> Result<Vec<u8>, ConfigErrors> {
    tokio::task::spawn_blocking(move || read(field, &path))
        .await
        .unwrap_or_else(|_| Err(ConfigErrors::single(field, "was not read: the program is ending")))
}
