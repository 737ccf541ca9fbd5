use std::path::{Path, PathBuf};

use mixer_adapter_core::adapter::ConfigErrors;
use mixer_adapter_net::tls;

/// A whole file that a field names.
pub(super) fn read(field: &str, path: &Path) -> Result<Vec<u8>, ConfigErrors> {
    tls::read(path)
        .map_err(|error| ConfigErrors::single(field, format!("{} cannot be read: {error}", path.display())))
}

/// The same off the threads that serve calls.
pub(super) async fn read_aside(field: String, path: PathBuf) -> Result<Vec<u8>, ConfigErrors> {
    let aside = tokio::task::spawn_blocking({
        let field = field.clone();
        move || read(&field, &path)
    });
    aside.await.unwrap_or_else(|_| Err(ConfigErrors::single(field, "was not read: the program is ending")))
}
