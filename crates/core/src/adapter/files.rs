//! Opening of files that a configuration names.

use std::{fs, io, path::Path};

use super::FileLocation;

/// The longest file that is read, in bytes.
const MAX_SIZE: u64 = 16 << 20;

/// Opens a regular file. If it must be below a root, no link leads out of it.
pub(super) fn open(location: &FileLocation) -> io::Result<fs::File> {
    let resolved = location.path.canonicalize()?;
    if !resolved.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let Some(root) = &location.root else { return fs::File::open(resolved) };
    let root = root.canonicalize()?;
    check_below(&resolved, &root)?;
    let file = fs::File::open(&resolved)?;
    check_below(&opened_path(&file, &resolved)?, &root)?;
    Ok(file)
}

fn check_below(path: &Path, root: &Path) -> io::Result<()> {
    if path.starts_with(root) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "a link leads out of --file-root"))
}

/// Returns where an open file is: a link may have been put in its way after it was resolved.
#[cfg(target_os = "linux")]
fn opened_path(file: &fs::File, _: &Path) -> io::Result<std::path::PathBuf> {
    use std::os::fd::AsRawFd as _;
    fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(not(target_os = "linux"))]
fn opened_path(_: &fs::File, resolved: &Path) -> io::Result<std::path::PathBuf> {
    resolved.canonicalize()
}

impl FileLocation {
    /// Reads the regular file of up to 16 MiB. No link leads out of the root. Blocks the thread.
    ///
    /// # Errors
    /// A file that cannot be read, is not regular, is too long or is outside of the root.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        use io::Read as _;
        let mut contents = Vec::new();
        open(self)?.take(MAX_SIZE + 1).read_to_end(&mut contents)?;
        if contents.len() as u64 > MAX_SIZE {
            let text = format!("it has more than {MAX_SIZE} bytes");
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        Ok(contents)
    }
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_lead_nowhere_out_of_the_root_and_anywhere_within_it() {
        let directory = std::env::temp_dir().join(format!("mixer-adapter-files-{}", std::process::id()));
        let root = directory.join("root");
        fs::create_dir_all(&root).unwrap();
        fs::write(directory.join("outside"), "outside").unwrap();
        fs::write(root.join("inside"), "inside").unwrap();
        symlink("inside", root.join("near")).unwrap();
        symlink("../outside", root.join("far")).unwrap();
        symlink(&directory, root.join("up")).unwrap();
        let below = |name: &str| FileLocation { root: Some(root.clone()), path: root.join(name) }.read();
        assert_eq!(below("inside").unwrap(), b"inside");
        assert_eq!(below("near").unwrap(), b"inside");
        for name in ["far", "up/outside"] {
            assert_eq!(below(name).unwrap_err().to_string(), "a link leads out of --file-root", "{name}");
            assert_eq!(FileLocation { root: None, path: root.join(name) }.read().unwrap(), b"outside");
        }
        assert!(below("up").unwrap_err().to_string().contains("not a regular file"));
        fs::remove_dir_all(directory).unwrap();
    }
}
