use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use rustix::fs::OFlags;

/// Far more than certificates, keys, tokens and lists need.
const MAX_SIZE: u64 = 4 << 20;

/// Opens a file to read it. Links are followed: mounted config maps consist of them.
///
/// # Errors
/// Errors of the system, and a file that is not regular: reading a pipe or a device may never end.
pub fn open_file(path: &Path) -> io::Result<File> {
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

/// Reads a whole file of up to 4 MiB.
///
/// # Errors
/// As for [`open_file`], and a file that is longer.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    read_file_within(path, MAX_SIZE)
}

/// Reads a whole file of up to `max` bytes.
///
/// # Errors
/// As for [`open_file`], and a file that is longer.
pub fn read_file_within(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let length = open_file(path)?.take(max.saturating_add(1)).read_to_end(&mut content)?;
    if length as u64 <= max {
        Ok(content)
    } else {
        let what = format!("it is longer than {} MiB", max >> 20);
        Err(io::Error::new(io::ErrorKind::FileTooLarge, what))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{fs, os::unix::fs::symlink, process::Command};

    use super::*;

    #[test]
    fn regular_files_are_read_also_by_links_and_up_to_a_length() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, [b'a'; 1 << 20]).unwrap();
        symlink(&file, &link).unwrap();
        assert_eq!(read_file_within(&link, 1 << 20).unwrap().len(), 1 << 20);
        let error = read_file_within(&file, (1 << 20) - 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }

    #[test]
    fn what_may_never_end_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [&pipe, Path::new("/dev/zero")] {
            let error = read_file(path).unwrap_err().to_string();
            assert_eq!(error, "it is a pipe or a device, not a regular file", "{}", path.display());
        }
        assert_eq!(read_file(folder.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    }
}
