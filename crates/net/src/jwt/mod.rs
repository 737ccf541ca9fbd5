//! Clients that are known by JSON Web Tokens (RFC 7519).

mod claims;
mod keys;

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    convert::Infallible,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName, header::AUTHORIZATION};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use self::{
    claims::{Claims, Header},
    keys::KeySet,
};
use crate::{followed_file::FollowedFile, tokens::header_token};

pub use self::keys::JwksError;

/// How much the clocks of the issuer and of this machine may differ, in seconds.
const LEEWAY: f64 = 60.0;

/// The longest token in bytes.
const MAX_TOKEN: usize = 8 << 10;

/// The number of tokens that are verified once.
const MAX_VERIFIED: usize = 4_096;

/// What JSON Web Tokens must say.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JwtOptions {
    /// The file with the keys of the issuer, a JSON Web Key Set (RFC 7517), which is followed when it changes.
    pub jwks: PathBuf,
    /// The issuer that tokens must have; `None` accepts any whose keys are in the file.
    pub issuer: Option<String>,
    /// Audiences of which a token must have one. Without any, tokens that are for an audience are refused.
    pub audiences: Vec<String>,
    /// The header that tokens are in; in `authorization`, `Bearer` may stand before them.
    pub header: HeaderName,
}

impl JwtOptions {
    /// Accepts tokens of any issuer that are for no audience, in `authorization`.
    pub fn new(jwks: PathBuf) -> Self {
        Self { jwks, issuer: None, audiences: Vec::new(), header: AUTHORIZATION }
    }

    /// Accepts tokens of this issuer only.
    #[must_use]
    pub fn with_issuer(self, issuer: Option<String>) -> Self {
        Self { issuer, ..self }
    }

    /// Accepts tokens for one of these audiences only.
    #[must_use]
    pub fn with_audiences(self, audiences: Vec<String>) -> Self {
        Self { audiences, ..self }
    }

    /// Expects tokens in this header.
    #[must_use]
    pub fn with_header(self, header: HeaderName) -> Self {
        Self { header, ..self }
    }
}

/// Verifies JSON Web Tokens, signed with RS256 or ES256. The name of a client is the subject of its token.
#[derive(Debug)]
pub struct JwtVerifier {
    options: JwtOptions,
    keys: FollowedFile<KeySet, JwksError>,
    verified: Mutex<Verified>,
}

/// Tokens whose signature was verified, by their digests, with the keys that verified them.
#[derive(Debug, Default)]
struct Verified {
    keys: Option<Arc<KeySet>>,
    tokens: HashMap<[u8; 32], VerifiedToken>,
}

#[derive(Clone, Debug)]
struct VerifiedToken {
    subject: Arc<str>,
    /// Seconds since 1970 from which on it is not valid any more.
    expires: f64,
}

/// A token that is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum JwtError {
    #[error("it is longer than {MAX_TOKEN} bytes")]
    TooLong,
    #[error("it is not a signed JSON Web Token")]
    Malformed,
    #[error("its header has critical extensions, which are not supported")]
    Critical,
    #[error("its algorithm is neither RS256 nor ES256")]
    Algorithm,
    #[error("no key of the issuer has its key id and algorithm")]
    Key,
    #[error("its signature is wrong")]
    Signature,
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    NotYetValid,
    #[error("it is of another issuer")]
    Issuer,
    #[error("it is for another audience")]
    Audience,
    #[error("its subject cannot be a name")]
    Subject,
}

impl JwtVerifier {
    /// Reads the keys.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn load(options: JwtOptions) -> Result<Arc<Self>, JwksError> {
        let keys = FollowedFile::load(options.jwks.clone(), KeySet::read)?;
        Ok(Arc::new(Self { options, keys, verified: Mutex::default() }))
    }

    /// Returns the name of the client whose token a request has; `None` without a token or with one that is not accepted.
    pub(crate) fn client(&self, headers: &HeaderMap) -> Option<Arc<str>> {
        let token = header_token(headers, &self.options.header)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
        self.verify(token, now).inspect_err(|reason| tracing::debug!(%reason, "token refused")).ok()
    }

    /// Reads the keys again. While the file cannot be used, the former keys stay valid, and the fault is logged once.
    pub fn reload(&self) {
        self.keys.reload();
    }

    /// Follows the file.
    pub async fn watch(&self) -> Infallible {
        self.keys.watch().await
    }

    /// Returns the subject of a token, if it is accepted at the time `now`, in seconds since 1970.
    fn verify(&self, token: &[u8], now: f64) -> Result<Arc<str>, JwtError> {
        if token.len() > MAX_TOKEN {
            return Err(JwtError::TooLong);
        }
        let keys = self.keys.current();
        let digest: [u8; 32] = Sha256::digest(token).into();
        if let Some(known) = self.known(&keys, &digest) {
            return if now < known.expires { Ok(known.subject) } else { Err(JwtError::Expired) };
        }
        let verified = self.verify_unknown(&keys, token, now)?;
        let subject = verified.subject.clone();
        self.remember(keys, digest, verified, now);
        Ok(subject)
    }

    fn verify_unknown(&self, keys: &KeySet, token: &[u8], now: f64) -> Result<VerifiedToken, JwtError> {
        let token = str::from_utf8(token).map_err(|_| JwtError::Malformed)?;
        let (signed, signature) = token.rsplit_once('.').ok_or(JwtError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(JwtError::Malformed)?;
        let header: Header = decode(header)?;
        if header.crit.is_some() {
            return Err(JwtError::Critical);
        }
        let claims: Claims = decode(claims)?;
        // What costs least comes first; nothing is answered before the signature.
        let valid = claims.check(&self.options, now);
        let key = keys.find(&header)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| JwtError::Malformed)?;
        valid?;
        key.verify(signed.as_bytes(), &signature)?;
        Ok(VerifiedToken { subject: claims.sub.into(), expires: claims.exp + LEEWAY })
    }

    fn known(&self, keys: &Arc<KeySet>, digest: &[u8; 32]) -> Option<VerifiedToken> {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        verified.is_of(keys).then(|| verified.tokens.get(digest).cloned()).flatten()
    }

    fn remember(&self, keys: Arc<KeySet>, digest: [u8; 32], token: VerifiedToken, now: f64) {
        let mut verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if !verified.is_of(&keys) {
            *verified = Verified { keys: Some(keys), tokens: HashMap::new() };
        }
        if verified.tokens.len() >= MAX_VERIFIED {
            verified.tokens.retain(|_, token| now < token.expires);
        }
        if verified.tokens.len() >= MAX_VERIFIED {
            verified.tokens.clear();
        }
        verified.tokens.insert(digest, token);
    }
}

impl Verified {
    fn is_of(&self, keys: &Arc<KeySet>) -> bool {
        self.keys.as_ref().is_some_and(|own| Arc::ptr_eq(own, keys))
    }
}

/// Decodes a part of a token: base64url of JSON.
fn decode<T: DeserializeOwned>(part: &str) -> Result<T, JwtError> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Malformed)?;
    serde_json::from_slice(&json).map_err(|_| JwtError::Malformed)
}
