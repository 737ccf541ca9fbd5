use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

/// Far more than certificates, keys, tokens and lists need.
const LARGEST: u64 = 4 << 20;

/// A whole file of up to 4 MiB.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let length = File::open(path)?.take(LARGEST + 1).read_to_end(&mut content)?;
    match length as u64 {
        0..=LARGEST => Ok(content),
        _ => Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than 4 MiB")),
    }
}
