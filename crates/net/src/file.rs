use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

/// Far more than certificates, keys, tokens and lists need.
const MAX_SIZE: u64 = 4 << 20;

/// Reads a whole file of up to 4 MiB.
///
/// # Errors
/// Those of the system, and a file that is longer.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let length = File::open(path)?.take(MAX_SIZE + 1).read_to_end(&mut content)?;
    match length as u64 {
        0..=MAX_SIZE => Ok(content),
        _ => Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 4 MiB")),
    }
}
