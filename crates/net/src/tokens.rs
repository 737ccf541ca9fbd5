use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use http::{HeaderMap, HeaderName, header::AUTHORIZATION};
use sha2::{Digest as _, Sha256};

use crate::{followed_file::FollowedFile, read_file};

/// The bearer tokens of clients, from a file that is followed when it changes.
///
/// Each line has a token, with the name of its client before it: `mixer s3cr3t`. A line that begins with `#` is a comment.
#[derive(Debug)]
pub struct Tokens {
    header: HeaderName,
    names: FollowedFile<Names, TokensError>,
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
        let names = FollowedFile::load(file.clone(), read)?;
        if names.admits_nobody() {
            return Err(TokensError::Empty { file });
        }
        Ok(Arc::new(Self { header: header.unwrap_or(AUTHORIZATION), names }))
    }

    /// Returns the name of the client whose token a request has; `None` without a token or with an unknown one.
    pub(crate) fn client(&self, headers: &HeaderMap) -> Option<Arc<str>> {
        self.name_of(header_token(headers, &self.header)?)
    }

    /// Returns the name of the client with a token.
    pub fn name_of(&self, token: &[u8]) -> Option<Arc<str>> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        self.names.current().get(&digest).cloned()
    }

    /// Reads the file again. One without tokens admits nobody: at once if it has comments only, and 10 s after it became empty or was
    /// removed. While it has other faults, the former tokens stay valid, and the fault is logged once.
    pub fn reload(&self) {
        self.names.reload();
    }

    /// Follows the file.
    pub async fn watch(&self) -> Infallible {
        self.names.watch().await
    }
}

/// Returns the token in a header; in `authorization`, `Bearer` may stand before it.
pub(crate) fn header_token<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let value = headers.get(name)?.as_bytes();
    match value.split_at_checked(7) {
        Some((scheme, token)) if name == AUTHORIZATION && scheme.eq_ignore_ascii_case(b"bearer ") => {
            Some(token)
        }
        _ => Some(value),
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
    // Such a file may be being written.
    if content.is_empty() {
        return Err(TokensError::Empty { file: file.to_owned() });
    }
    Ok(names)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{fs, time::Duration};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_file_without_tokens_admits_nobody_and_one_with_faults_the_former_clients() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tokens");
        fs::write(&file, "mixer s3cret").unwrap();
        let tokens = Tokens::load(file.clone(), None).unwrap();
        let headers = HeaderMap::from_iter([(AUTHORIZATION, "s3cret".parse().unwrap())]);
        for (content, is_admitted_at_once, is_admitted_later) in [
            (Some("three words here"), true, true),
            (Some("# mixer s3cret"), false, false),
            (Some("\n"), false, false),
            (Some(""), true, false),
            (None, true, false),
        ] {
            fs::write(&file, "mixer s3cret").unwrap();
            tokens.reload();
            assert!(tokens.client(&headers).is_some());
            match content {
                Some(content) => fs::write(&file, content).unwrap(),
                None => fs::remove_file(&file).unwrap(),
            }
            tokens.reload();
            assert_eq!(tokens.client(&headers).is_some(), is_admitted_at_once, "{content:?}");
            tokio::time::advance(Duration::from_secs(10)).await;
            tokens.reload();
            assert_eq!(tokens.client(&headers).is_some(), is_admitted_later, "{content:?}");
        }
    }

    #[test]
    fn a_server_does_not_start_without_tokens() {
        let directory = tempfile::tempdir().unwrap();
        for content in ["", "# mixer s3cret\n"] {
            let file = directory.path().join("tokens");
            fs::write(&file, content).unwrap();
            assert!(matches!(Tokens::load(file, None), Err(TokensError::Empty { .. })), "{content:?}");
        }
    }
}
