use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use serde_json::{Value as Json, json};

/// An issuer of JSON Web Tokens with one key.
pub struct Issuer {
    key_id: &'static str,
    key: EcdsaKeyPair,
}

impl Issuer {
    pub fn new(key_id: &'static str) -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self { key_id, key: EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap() }
    }

    /// The public key, as an entry of a JSON Web Key Set.
    pub fn jwk(&self) -> Json {
        let point = &self.key.public_key().as_ref()[1..];
        let [x, y] = [&point[..32], &point[32..]].map(|half| URL_SAFE_NO_PAD.encode(half));
        json!({ "kty": "EC", "crv": "P-256", "kid": self.key_id, "x": x, "y": y })
    }

    /// A token with these claims.
    pub fn issue(&self, claims: &Json) -> String {
        self.sign(&json!({ "alg": "ES256", "kid": self.key_id }), claims)
    }

    /// A token with this header, signed with ES256 whatever it says.
    pub fn sign(&self, header: &Json, claims: &Json) -> String {
        let signed = unsigned(header, claims);
        let signature = self.key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap();
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// The part of a token that is signed.
pub fn unsigned(header: &Json, claims: &Json) -> String {
    [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".")
}
