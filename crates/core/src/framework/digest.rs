//! Identifiers made from content.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// The first 128 bits of a SHA-256: equal content has an equal digest in every process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 16]);

impl Digest {
    /// Returns the digest of a sequence of parts. The boundaries between parts are significant.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let mut digest = [0; 16];
        digest.copy_from_slice(&hasher.finalize()[..16]);
        Self(digest)
    }

    /// Parses the 32 hexadecimal digits that [`Display`](fmt::Display) writes.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text: &[u8; 32] = text.try_into().ok()?;
        let mut digest = [0; 16];
        for (byte, pair) in digest.iter_mut().zip(text.chunks_exact(2)) {
            let nibble = |digit: u8| (digit as char).to_digit(16).filter(|_| !digit.is_ascii_uppercase());
            *byte = (nibble(pair[0])? << 4 | nibble(pair[1])?) as u8;
        }
        Some(Self(digest))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn digests_are_parsed_from_their_text() {
        let digest = Digest::of([&b"a"[..], b"b"]);
        assert_eq!(Digest::parse(digest.to_string().as_bytes()), Some(digest));
        for bad in ["", "0", &"g".repeat(32), &"A".repeat(32), &"0".repeat(33)] {
            assert_eq!(Digest::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn boundaries_between_parts_are_significant() {
        assert_ne!(Digest::of([&b"ab"[..], b""]), Digest::of([&b"a"[..], b"b"]));
    }
}
