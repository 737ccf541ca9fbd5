use std::{
    fmt, fs, io,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use tokio::{task::spawn_blocking, time::Instant};

use super::{FileLocation, files};
use crate::locked::locked;

/// How long the file is not looked at again.
const FRESH: Duration = Duration::from_secs(1);

/// A secret in a file, such as a token or a password. A changed file is read again.
///
/// [`Context::secret`](super::Context::secret) opens it. Its text is not in `Debug`.
#[derive(Clone)]
pub struct Secret(Arc<SecretFile>);

struct SecretFile {
    location: FileLocation,
    current: Mutex<Current>,
}

#[derive(Clone)]
struct Current {
    text: SecretText,
    version: (Option<SystemTime>, u64),
    checked: Instant,
}

/// The text of a secret. Its `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Arc<str>);

impl SecretText {
    /// Returns the text, which must not be logged.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(..)")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.0.location)
    }
}

impl Secret {
    /// Reads a secret.
    pub(super) async fn open(location: FileLocation) -> io::Result<Self> {
        let (current, location) = run(move || Ok((read(&location)?, location))).await?;
        Ok(Self(Arc::new(SecretFile { location, current: Mutex::new(current) })))
    }

    /// Returns the text without the line ends after it. The file is looked at once in a second at most.
    ///
    /// # Errors
    /// The file changed and cannot be read, or is not UTF-8.
    pub async fn text(&self) -> io::Result<SecretText> {
        let former = {
            let mut current = locked(&self.0.current);
            if current.checked.elapsed() < FRESH {
                return Ok(current.text.clone());
            }
            let former = current.clone();
            // Other calls meanwhile use the former text, so that one looks at the file.
            current.checked = Instant::now();
            former
        };
        let (file, known) = (self.0.clone(), former.clone());
        let renewed = run(move || {
            if version(&files::open(&file.location)?)? == known.version {
                return Ok(Current { checked: Instant::now(), ..known });
            }
            read(&file.location)
        });
        let renewed = renewed.await;
        let current = renewed.as_ref().map_or(former, Clone::clone);
        *locked(&self.0.current) = current;
        Ok(renewed?.text)
    }
}

/// Runs work that may block.
pub(super) async fn run<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn version(file: &fs::File) -> io::Result<(Option<SystemTime>, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.modified().ok(), metadata.len()))
}

fn read(location: &FileLocation) -> io::Result<Current> {
    // The version is taken first: a change while the file is read is noticed later.
    let version = version(&files::open(location)?)?;
    let text = String::from_utf8(location.read()?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))?;
    let text = SecretText(text.trim_end_matches(['\r', '\n']).into());
    Ok(Current { text, version, checked: Instant::now() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::Context;

    #[tokio::test(start_paused = true)]
    async fn a_changed_secret_is_read_again_and_a_missing_one_is_an_error() {
        let path = std::env::temp_dir().join(format!("mixer-adapter-secret-{}", std::process::id()));
        fs::write(&path, "one\r\n").unwrap();
        let secret = Context::detached(()).secret("token_file", &path).await.unwrap();
        assert!(!format!("{secret:?} {:?}", secret.text().await.unwrap()).contains("one"));
        fs::write(&path, "second").unwrap();
        assert_eq!(secret.text().await.unwrap().expose(), "one", "looked at within a second");
        tokio::time::advance(FRESH).await;
        assert_eq!(secret.text().await.unwrap().expose(), "second");
        fs::remove_file(&path).unwrap();
        tokio::time::advance(FRESH).await;
        secret.text().await.unwrap_err();
        fs::write(&path, "third one").unwrap();
        assert_eq!(secret.text().await.unwrap().expose(), "third one");
        fs::remove_file(&path).unwrap();
    }
}
