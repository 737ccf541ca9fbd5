use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use crate::adapter::ConfigErrors;

/// Far more than certificates, keys and tokens need.
const LARGEST: u64 = 4 << 20;

/// A whole file that a field names.
pub(super) fn read(field: &str, path: &Path) -> Result<Vec<u8>, ConfigErrors> {
    let mut content = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut content));
    let read = read.and_then(|length| match length as u64 {
        0..=LARGEST => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 4 MiB")),
    });
    read.map(|()| content)
        .map_err(|error| ConfigErrors::one(field, format!("{} cannot be read: {error}", path.display())))
}

/// The same off the threads that serve calls.
pub(super) async fn read_aside(field: String, path: std::path::PathBuf) -> Result<Vec<u8>, ConfigErrors> {
    let aside = tokio::task::spawn_blocking({
        let field = field.clone();
        move || read(&field, &path)
    });
    aside.await.unwrap_or_else(|_| Err(ConfigErrors::one(field, "was not read: the program is ending")))
}
