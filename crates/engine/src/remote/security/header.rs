use http::{HeaderName, HeaderValue};

/// How a token is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) name: HeaderName,
    pub(super) prefix: Prefix,
}

/// The prefix of the token in its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefix {
    None,
    Bearer,
    /// The token type that the OAuth server names.
    FromServer,
}

/// A token that cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TokenError {
    #[error("holds no token")]
    Empty,
    #[error("holds a token with a character that no header can carry")]
    NotAHeaderValue,
}

impl Header {
    /// Returns the value of the header, marked as sensitive. `kind` is the token type that an OAuth server names.
    pub(super) fn value(&self, token: &[u8], kind: &str) -> Result<HeaderValue, TokenError> {
        // Files end in a newline, which is not allowed in a header.
        let token = token.trim_ascii();
        if token.is_empty() {
            return Err(TokenError::Empty);
        }
        let prefix = match self.prefix {
            Prefix::None => "",
            Prefix::FromServer if !kind.is_empty() && !kind.eq_ignore_ascii_case("bearer") => kind,
            Prefix::FromServer | Prefix::Bearer => "Bearer",
        };
        let value = match prefix {
            "" => token.to_vec(),
            prefix => [prefix.as_bytes(), b" ", token].concat(),
        };
        let mut value = HeaderValue::from_maybe_shared(bytes::Bytes::from(value))
            .map_err(|_| TokenError::NotAHeaderValue)?;
        value.set_sensitive(true);
        Ok(value)
    }
}
