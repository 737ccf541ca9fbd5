//! Ids of sessions, and the key that they are made with.

use std::fmt;

use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// The id of a session: the first 128 bits of an HMAC-SHA256 of adapter, canonical configuration and inferred types. Mixers
/// with the same configuration have the same id; only these can know it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId([u8; 16]);

impl SessionId {
    /// Parses the 32 hexadecimal digits that [`Display`](fmt::Display) writes.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text: &[u8; 32] = text.try_into().ok()?;
        let mut id = [0; 16];
        for (byte, pair) in id.iter_mut().zip(text.chunks_exact(2)) {
            *byte = (nibble(pair[0])? << 4 | nibble(pair[1])?) as u8;
        }
        Some(Self(id))
    }
}

fn nibble(digit: u8) -> Option<u32> {
    (digit as char).to_digit(16).filter(|_| !digit.is_ascii_uppercase())
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for SessionId {
    /// Writes the first eight digits: the whole id gives access to the session.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..", self.abbreviated())
    }
}

impl SessionId {
    /// Returns the first eight digits, which identify a session to people but do not give access to it.
    pub(crate) fn abbreviated(&self) -> String {
        self.0[..4].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// The key of session ids. Processes with the same key give equal sessions equal ids.
#[derive(Clone)]
pub struct SessionKey(Hmac<Sha256>);

/// A key that is too short to keep ids from being guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key has {length} bytes; it must have at least {}", SessionKey::MIN_LENGTH)]
#[non_exhaustive]
pub struct SessionKeyError {
    /// The length of the key in bytes.
    pub length: usize,
}

impl SessionKey {
    /// The minimum length of a key in bytes.
    pub const MIN_LENGTH: usize = 32;

    /// Creates a random key.
    ///
    /// # Panics
    /// The system provides no random numbers.
    pub fn random() -> Self {
        let mut key = [0; Self::MIN_LENGTH];
        if let Err(error) = getrandom::fill(&mut key) {
            panic!("the system provides no random numbers: {error}");
        }
        Self::from_bytes(&key)
    }

    /// Creates a key from a shared secret.
    ///
    /// # Errors
    /// The secret is shorter than [`MIN_LENGTH`](Self::MIN_LENGTH).
    pub fn new(secret: &[u8]) -> Result<Self, SessionKeyError> {
        match secret.len() {
            length if length < Self::MIN_LENGTH => Err(SessionKeyError { length }),
            _ => Ok(Self::from_bytes(secret)),
        }
    }

    fn from_bytes(key: &[u8]) -> Self {
        let Ok(mac) = Hmac::new_from_slice(key) else { unreachable!("HMAC takes keys of any length") };
        Self(mac)
    }

    /// Returns the id of a sequence of parts. The boundaries between parts are significant.
    pub(crate) fn id<'a>(&self, parts: impl IntoIterator<Item = &'a [u8]>) -> SessionId {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        let mut id = [0; 16];
        id.copy_from_slice(&mac.finalize().into_bytes()[..16]);
        SessionId(id)
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey(..)")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const SECRET: &[u8; 32] = b"0123456789abcdef0123456789abcdef";

    #[test]
    fn ids_are_equal_for_equal_content_and_keys_only() {
        let parts = || [&b"denier"[..], b"config"];
        let key = SessionKey::new(SECRET).unwrap();
        assert_eq!(key.id(parts()), SessionKey::new(SECRET).unwrap().id(parts()));
        assert_ne!(key.id(parts()), SessionKey::random().id(parts()));
        assert_ne!(key.id([&b"denierc"[..], b"onfig"]), key.id(parts()), "boundaries are significant");
    }

    #[test]
    fn a_short_key_is_refused() {
        assert_eq!(SessionKey::new(&SECRET[1..]).unwrap_err(), SessionKeyError { length: 31 });
    }

    #[test]
    fn ids_are_parsed_from_their_text() {
        let id = SessionKey::new(SECRET).unwrap().id([&b"a"[..]]);
        assert_eq!(SessionId::parse(id.to_string().as_bytes()), Some(id));
        for bad in ["", "0", &"g".repeat(32), &"A".repeat(32), &"0".repeat(33)] {
            assert_eq!(SessionId::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn debug_output_hides_most_of_an_id() {
        let id = SessionKey::new(SECRET).unwrap().id([&b"a"[..]]);
        assert!(id.to_string().starts_with(&id.abbreviated()));
        assert_eq!(format!("{id:?}").len(), 10);
    }
}
