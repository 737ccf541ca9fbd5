use std::{
    collections::HashMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use http::{HeaderMap, HeaderName, header::AUTHORIZATION};
use sha2::{Digest as _, Sha256};

use crate::read_file;

/// How often the file is read.
const POLL: Duration = Duration::from_secs(2);

/// The bearer tokens of clients, from a file that is followed when it changes.
///
/// Each line has a token, with the name of its client before it: `mixer s3cr3t`. A line that begins with `#` is a comment.
pub struct Tokens {
    file: PathBuf,
    header: HeaderName,
    names: RwLock<Names>,
    last_logged: Mutex<String>,
}

/// Names by the digests of tokens: comparing digests shows nothing of a token.
type Names = HashMap<[u8; 32], Arc<str>>;

/// A file of tokens that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokensError {
    /// A file that cannot be read.
    #[error("cannot read the tokens in {}", file.display())]
    File {
        /// The path of the file.
        file: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A line that is not a name and a token.
    #[error("line {line} of {} is not a name and a token, separated by a space", file.display())]
    Line {
        /// The path of the file.
        file: PathBuf,
        /// The number of the line, from 1.
        line: usize,
    },
    /// A file without a token.
    #[error("{} has no token", file.display())]
    Empty {
        /// The path of the file.
        file: PathBuf,
    },
}

impl Tokens {
    /// Reads a file. Tokens are expected in `header`; in `authorization`, `Bearer` may stand before them.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn load(file: PathBuf, header: Option<HeaderName>) -> Result<Arc<Self>, TokensError> {
        let names = read(&file)?;
        let (names, last_logged) = (RwLock::new(names), Mutex::default());
        Ok(Arc::new(Self { file, header: header.unwrap_or(AUTHORIZATION), names, last_logged }))
    }

    /// Returns the name of the client whose token a request has; `None` without a token or with an unknown one.
    pub(crate) fn client(&self, headers: &HeaderMap) -> Option<Arc<str>> {
        let value = headers.get(&self.header)?.as_bytes();
        let token = match self.header == AUTHORIZATION {
            true => strip_bearer(value),
            false => value,
        };
        let digest: [u8; 32] = Sha256::digest(token).into();
        self.names.read().unwrap_or_else(PoisonError::into_inner).get(&digest).cloned()
    }

    /// Reads the file again. While it cannot be used, the former tokens stay valid, and the fault is logged once.
    pub fn reload(&self) {
        let read = read(&self.file);
        let mut last_logged = self.last_logged.lock().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok(read) => {
                let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
                if *names != read {
                    tracing::info!(file = %self.file.display(), tokens = read.len(), "tokens changed");
                }
                *names = read;
                last_logged.clear();
            }
            Err(error) => {
                let text = crate::with_causes(&error);
                if text != *last_logged {
                    tracing::warn!(error = text, "changed tokens cannot be used; the former ones stay valid");
                    *last_logged = text;
                }
            }
        }
    }

    /// Follows the file.
    pub async fn watch(&self) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(POLL).await;
            self.reload();
        }
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("file", &self.file).finish_non_exhaustive()
    }
}

fn strip_bearer(value: &[u8]) -> &[u8] {
    match value.split_at_checked(7) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => token,
        _ => value,
    }
}

fn read(file: &Path) -> Result<Names, TokensError> {
    let content = read_file(file).map_err(|source| TokensError::File { file: file.to_owned(), source })?;
    let content = String::from_utf8_lossy(&content);
    let mut names = HashMap::new();
    for (index, line) in content.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split_whitespace();
        let (Some(name), Some(token), None) = (words.next(), words.next(), words.next()) else {
            return Err(TokensError::Line { file: file.to_owned(), line: index + 1 });
        };
        names.insert(Sha256::digest(token.as_bytes()).into(), Arc::from(name));
    }
    if names.is_empty() {
        return Err(TokensError::Empty { file: file.to_owned() });
    }
    Ok(names)
}
