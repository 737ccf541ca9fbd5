use serde::Deserialize;

use super::{JwtError, JwtOptions, LEEWAY};

/// The header of a token (RFC 7515, section 4.1).
#[derive(Debug, Deserialize)]
pub(super) struct Header {
    pub(super) alg: String,
    pub(super) kid: Option<String>,
    pub(super) crit: Option<serde_json::Value>,
}

/// The claims of a token (RFC 7519, section 4.1). Without a subject it names nobody, and without an expiry it would be valid for ever.
#[derive(Debug, Deserialize)]
pub(super) struct Claims {
    pub(super) sub: String,
    pub(super) exp: f64,
    nbf: Option<f64>,
    iss: Option<String>,
    aud: Option<Audience>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

/// The longest subject in bytes.
const MAX_SUBJECT: usize = 256;

impl Claims {
    /// Checks the claims at the time `now`, in seconds since 1970.
    pub(super) fn check(&self, options: &JwtOptions, now: f64) -> Result<(), JwtError> {
        if now >= self.exp + LEEWAY {
            return Err(JwtError::Expired);
        }
        if self.nbf.is_some_and(|start| now < start - LEEWAY) {
            return Err(JwtError::NotYetValid);
        }
        if options.issuer.is_some() && self.iss != options.issuer {
            return Err(JwtError::Issuer);
        }
        let audiences = match &self.aud {
            None => &[],
            Some(Audience::One(audience)) => std::slice::from_ref(audience),
            Some(Audience::Many(audiences)) => &audiences[..],
        };
        // A token for others must be refused by whoever has no name among them (RFC 7519, section 4.1.3).
        let unrestricted = options.audiences.is_empty() && self.aud.is_none();
        if !unrestricted && !audiences.iter().any(|audience| options.audiences.contains(audience)) {
            return Err(JwtError::Audience);
        }
        if self.sub.is_empty() || self.sub.len() > MAX_SUBJECT || self.sub.chars().any(char::is_control) {
            return Err(JwtError::Subject);
        }
        Ok(())
    }
}
