use std::{
    io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;

use super::{JwtError, claims::Header};
use crate::read_file;

/// A file of keys that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JwksError {
    /// A file that cannot be read.
    #[error("cannot read the keys in {}", file.display())]
    File {
        /// The path of the file.
        file: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file that is not a JSON Web Key Set.
    #[error("{} is not a JSON Web Key Set", file.display())]
    Syntax {
        /// The path of the file.
        file: PathBuf,
        /// The reason.
        source: serde_json::Error,
    },
    /// A file without a usable key.
    #[error("{} has no key for signatures with RS256 or ES256", file.display())]
    Empty {
        /// The path of the file.
        file: PathBuf,
    },
}

/// The public keys of an issuer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KeySet(Vec<Key>);

/// A public key with its only algorithm. The `alg` of a token does not choose another one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Key {
    id: Option<String>,
    public: PublicKey,
}

#[derive(Debug, PartialEq, Eq)]
enum PublicKey {
    /// Modulus and exponent.
    Rs256(Vec<u8>, Vec<u8>),
    /// An uncompressed point on P-256.
    Es256(Vec<u8>),
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<serde_json::Value>,
}

/// A JSON Web Key (RFC 7517, RFC 7518 section 6).
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    n: Option<String>,
    e: Option<String>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Reads a file. Keys of other kinds and for other purposes are skipped, as RFC 7517 (section 5) asks.
    pub(super) fn read(file: &Path) -> Result<Self, JwksError> {
        let content = read_file(file).map_err(|source| JwksError::File { file: file.to_owned(), source })?;
        let set: Jwks = serde_json::from_slice(&content)
            .map_err(|source| JwksError::Syntax { file: file.to_owned(), source })?;
        let keys = set.keys.into_iter().filter_map(|key| Key::parse(serde_json::from_value(key).ok()?));
        Ok(Self(keys.collect()))
    }

    /// Returns the key that a token names. One without a key id needs a single key for its algorithm, so that each token costs one
    /// verification at most.
    pub(super) fn find(&self, header: &Header) -> Result<&Key, JwtError> {
        if !["RS256", "ES256"].contains(&header.alg.as_str()) {
            return Err(JwtError::Algorithm);
        }
        let mut usable = self.0.iter().filter(|key| {
            key.public.algorithm() == header.alg && (header.kid.is_none() || key.id == header.kid)
        });
        match (usable.next(), usable.next()) {
            (Some(key), None) => Ok(key),
            _ => Err(JwtError::Key),
        }
    }
}

fn decode(text: Option<String>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text?).ok()
}

impl Key {
    fn parse(jwk: Jwk) -> Option<Self> {
        let public = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => PublicKey::Rs256(decode(jwk.n)?, decode(jwk.e)?),
            ("EC", Some("P-256")) => {
                let (x, y) = (decode(jwk.x)?, decode(jwk.y)?);
                (x.len() == 32 && y.len() == 32).then(|| PublicKey::Es256([&[4], &x[..], &y[..]].concat()))?
            }
            _ => return None,
        };
        let for_signatures = jwk.usage.is_none_or(|usage| usage == "sig");
        let for_algorithm = jwk.alg.is_none_or(|alg| alg == public.algorithm());
        (for_signatures && for_algorithm).then_some(Self { id: jwk.kid, public })
    }

    /// Verifies a signature.
    pub(super) fn verify(&self, signed: &[u8], signature: &[u8]) -> Result<(), JwtError> {
        let verified = match &self.public {
            PublicKey::Rs256(n, e) => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, signed, signature)
            }
            PublicKey::Es256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(signed, signature)
            }
        };
        verified.map_err(|_| JwtError::Signature)
    }
}

impl PublicKey {
    fn algorithm(&self) -> &'static str {
        match self {
            Self::Rs256(..) => "RS256",
            Self::Es256(_) => "ES256",
        }
    }
}
