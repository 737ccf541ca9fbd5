//! Clients that are known by JSON Web Tokens (RFC 7519).

mod claims;
mod keys;
mod refused;

#[cfg(test)]
mod tests;

use std::{
    convert::Infallible,
    path::{Path, PathBuf},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName, header::AUTHORIZATION};
use moka::{policy::EvictionPolicy, sync::Cache};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use self::{
    claims::{Claims, Header},
    keys::KeySet,
};
use crate::{followed_file::FollowedFile, tokens::header_token};

pub use self::keys::JwksError;
pub(crate) use self::refused::RefusedTokens;

/// How much the clocks of the issuer and of this machine may differ, in seconds.
const LEEWAY: f64 = 60.0;

/// The longest token in bytes.
const MAX_TOKEN: usize = 8 << 10;

/// The number of accepted tokens, and of refused ones, whose verification is cached.
const MAX_VERIFIED: u64 = 4_096;

/// What JSON Web Tokens must say.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JwtOptions {
    /// The file with the keys of the issuer, a JSON Web Key Set (RFC 7517), which is followed when it changes.
    pub jwks: PathBuf,
    /// The issuer that tokens must have; `None` accepts any whose keys are in the file.
    pub issuer: Option<String>,
    /// Accepted audiences. If empty, tokens with `aud` are rejected.
    pub audiences: Vec<String>,
    /// The header that tokens are in; in `authorization`, `Bearer` may stand before them.
    pub header: HeaderName,
}

impl JwtOptions {
    /// Accepts tokens of any issuer that are for no audience, in `authorization`.
    pub fn new(jwks: PathBuf) -> Self {
        Self { jwks, issuer: None, audiences: Vec::new(), header: AUTHORIZATION }
    }
}

/// Verifies JSON Web Tokens, signed with RS256 or ES256. The name of a client is the subject of its token.
#[derive(Debug)]
pub struct JwtVerifier {
    options: JwtOptions,
    keys: FollowedFile<Keys, JwksError>,
}

/// Keys, and the tokens whose signatures were verified with them, by their digests. Nobody but the issuer can make room among the
/// accepted ones.
#[derive(Debug)]
struct Keys {
    set: KeySet,
    accepted: Cache<[u8; 32], VerifiedToken>,
    refused: Cache<[u8; 32], ()>,
}

impl PartialEq for Keys {
    fn eq(&self, other: &Self) -> bool {
        self.set == other.set
    }
}

impl Default for Keys {
    fn default() -> Self {
        Self { set: KeySet::default(), accepted: recent(), refused: recent() }
    }
}

impl Keys {
    fn read(file: &Path) -> Result<Self, JwksError> {
        Ok(Self { set: KeySet::read(file)?, ..Self::default() })
    }
}

/// Creates a cache that forgets the tokens that were not shown for the longest time.
fn recent<T: Clone + Send + Sync + 'static>() -> Cache<[u8; 32], T> {
    Cache::builder().max_capacity(MAX_VERIFIED).eviction_policy(EvictionPolicy::lru()).build()
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
    #[error("too many tokens of its connection were refused")]
    TooManyRefused,
}

impl JwtVerifier {
    /// Reads the keys.
    ///
    /// # Errors
    /// A file that cannot be used.
    pub fn load(options: JwtOptions) -> Result<Arc<Self>, JwksError> {
        let keys = FollowedFile::load(options.jwks.clone(), Keys::read)?;
        if keys.admits_nobody() {
            return Err(JwksError::Empty { file: options.jwks });
        }
        Ok(Arc::new(Self { options, keys }))
    }

    /// Returns the name of the client whose token a request has; `None` without an accepted token.
    /// `refused` counts the refused tokens of the connection.
    pub(crate) fn client(&self, headers: &HeaderMap, refused: &RefusedTokens) -> Option<Arc<str>> {
        let token = header_token(headers, &self.options.header)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
        self.verify(token, now, refused).inspect_err(|reason| tracing::debug!(%reason, "token refused")).ok()
    }

    /// Reads the keys again. A key set without keys admits nobody at once, and a file that is empty or missing after 10 s. While it has
    /// other faults, the former keys stay valid, and the fault is logged once.
    pub fn reload(&self) {
        self.keys.reload();
    }

    /// Follows the file.
    pub async fn watch(&self) -> Infallible {
        self.keys.watch().await
    }

    /// Returns the subject of a token, if it is accepted at the time `now`, in seconds since 1970.
    fn verify(&self, token: &[u8], now: f64, refused: &RefusedTokens) -> Result<Arc<str>, JwtError> {
        if token.len() > MAX_TOKEN {
            return Err(JwtError::TooLong);
        }
        let keys = self.keys.current();
        let digest: [u8; 32] = Sha256::digest(token).into();
        if keys.refused.get(&digest).is_some() {
            return Err(JwtError::Signature);
        }
        let known = match keys.accepted.get(&digest) {
            Some(known) => known,
            // Before the verification, whose outcome other connections share.
            None if !refused.admits_another() => return Err(JwtError::TooManyRefused),
            // Calls that show a token at the same time wait for one verification.
            None => keys
                .accepted
                .try_get_with(digest, || self.verify_unknown(&keys, token, now, refused))
                .map_err(|error| {
                    if *error == JwtError::Signature {
                        keys.refused.insert(digest, ());
                    }
                    *error
                })?,
        };
        if now < known.expires { Ok(known.subject) } else { Err(JwtError::Expired) }
    }

    fn verify_unknown(
        &self,
        keys: &Keys,
        token: &[u8],
        now: f64,
        refused: &RefusedTokens,
    ) -> Result<VerifiedToken, JwtError> {
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
        let key = keys.set.find(&header)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| JwtError::Malformed)?;
        valid?;
        key.verify(signed.as_bytes(), &signature).inspect_err(|_| refused.count())?;
        Ok(VerifiedToken { subject: claims.sub.into(), expires: claims.exp + LEEWAY })
    }
}

/// Decodes a part of a token: base64url of JSON.
fn decode<T: DeserializeOwned>(part: &str) -> Result<T, JwtError> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Malformed)?;
    serde_json::from_slice(&json).map_err(|_| JwtError::Malformed)
}
