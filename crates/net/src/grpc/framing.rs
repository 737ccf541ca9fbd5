//! gRPC framing: a prefix before each message.

use bytes::{BufMut as _, Bytes, BytesMut};

/// The length of the prefix of a gRPC message: one byte of flags, four of length.
pub(super) const PREFIX: usize = 5;

/// A message that is not framed as gRPC demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// There is no message.
    #[error("there is no message")]
    Missing,
    /// It ends before its prefix does.
    #[error("the message ends within its prefix")]
    NoPrefix,
    /// It ends before the length in its prefix.
    #[error("the message ends after {arrived} of {length} bytes")]
    Incomplete {
        /// The bytes that have arrived.
        arrived: usize,
        /// The length in the prefix.
        length: usize,
    },
    /// There is another message after it.
    #[error("there is more than one message")]
    Several,
    /// It is compressed.
    #[error("compressed messages are not supported; send them uncompressed")]
    Compressed,
    /// Its flags are not defined.
    #[error("{0:#04x} is not a valid flag byte of a gRPC message")]
    Flags(u8),
    /// It is longer than the limit.
    #[error("the message has {length} bytes; the limit is {max}")]
    TooLong {
        /// The length in the prefix.
        length: usize,
        /// The limit.
        max: usize,
    },
}

/// Frames a message that is given in pieces.
///
/// # Errors
/// [`FrameError::TooLong`] for 4 GiB or more.
pub fn frame(pieces: &[&[u8]]) -> Result<Bytes, FrameError> {
    let length: usize = pieces.iter().map(|piece| piece.len()).sum();
    let prefix = u32::try_from(length).map_err(|_| FrameError::TooLong { length, max: u32::MAX as usize })?;
    let mut frame = BytesMut::with_capacity(PREFIX + length);
    frame.put_u8(0);
    frame.put_u32(prefix);
    pieces.iter().for_each(|piece| frame.put_slice(piece));
    Ok(frame.freeze())
}

/// The only message of a request or of an answer, while it arrives. Faults are found as soon as the prefix has arrived.
#[derive(Debug)]
pub struct UnaryMessage {
    max: usize,
    /// The first piece, which is often the whole message and then not copied.
    first: Bytes,
    /// All pieces, if there are several.
    all: BytesMut,
}

impl UnaryMessage {
    /// Expects a message of at most `max` bytes.
    pub fn new(max: usize) -> Self {
        Self { max, first: Bytes::new(), all: BytesMut::new() }
    }

    /// Adds bytes that have arrived.
    ///
    /// # Errors
    /// A fault of the prefix, or bytes after the message.
    pub fn push(&mut self, data: Bytes) -> Result<(), FrameError> {
        if self.arrived().is_empty() {
            self.first = data;
        } else if !data.is_empty() {
            self.all.extend_from_slice(&std::mem::take(&mut self.first));
            self.all.extend_from_slice(&data);
        }
        self.length().map(drop)
    }

    /// Returns the memory of the bytes that have arrived.
    pub(super) fn memory(&self) -> usize {
        self.first.len() + self.all.capacity()
    }

    /// Returns the message without its prefix.
    ///
    /// # Errors
    /// It has not arrived completely.
    pub fn finish(self) -> Result<Bytes, FrameError> {
        let arrived = self.arrived().len();
        match self.length()? {
            Some(length) if arrived == PREFIX + length => {}
            Some(length) => return Err(FrameError::Incomplete { arrived: arrived - PREFIX, length }),
            None if arrived == 0 => return Err(FrameError::Missing),
            None => return Err(FrameError::NoPrefix),
        }
        let mut whole = if self.all.is_empty() { self.first } else { self.all.freeze() };
        Ok(whole.split_off(PREFIX))
    }

    fn arrived(&self) -> &[u8] {
        if self.all.is_empty() { &self.first } else { &self.all }
    }

    /// Returns the length in the prefix once that has arrived.
    fn length(&self) -> Result<Option<usize>, FrameError> {
        let Some((&[flags, length @ ..], message)) = self.arrived().split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let (length, max) = (usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX), self.max);
        match flags {
            0 if length > max => Err(FrameError::TooLong { length, max }),
            0 if message.len() > length => Err(FrameError::Several),
            0 => Ok(Some(length)),
            1 => Err(FrameError::Compressed),
            flags => Err(FrameError::Flags(flags)),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(pieces: &[&'static [u8]]) -> Result<Bytes, FrameError> {
        let mut message = UnaryMessage::new(8);
        pieces.iter().try_for_each(|piece| message.push(Bytes::from_static(piece)))?;
        message.finish()
    }

    #[test]
    fn a_message_arrives_in_one_piece_or_in_many() {
        assert_eq!(read(&[b"\0\0\0\0\x03abc"]).unwrap(), "abc");
        assert_eq!(read(&[b"\0\0\0\0\0"]).unwrap(), "");
        assert_eq!(read(&[b"", b"\0\0", b"\0\0\x03a", b"", b"b", b"c"]).unwrap(), "abc");
        assert_eq!(read(&[b"\0\0\0\0\x03abc", b""]).unwrap(), "abc");
    }

    #[test]
    fn a_fault_is_found_with_the_prefix() {
        for (pieces, fault) in [
            (&[][..], FrameError::Missing),
            (&[&b"\0\0"[..]], FrameError::NoPrefix),
            (&[b"\0\0\0\0\x03ab"], FrameError::Incomplete { arrived: 2, length: 3 }),
            (&[b"\0\0\0\0\x03abcd"], FrameError::Several),
            (&[b"\0\0\0\0\x03abc", b"d"], FrameError::Several),
            (&[b"\x01\0\0\0\x01a"], FrameError::Compressed),
            (&[b"\x07\0\0\0\x01a"], FrameError::Flags(7)),
            (&[b"\0\0\0\0\x09"], FrameError::TooLong { length: 9, max: 8 }),
        ] {
            assert_eq!(read(pieces), Err(fault), "{pieces:?}");
        }
    }

    #[test]
    fn pieces_are_framed_as_one_message() {
        assert_eq!(frame(&[b"ab", b"", b"c"]).unwrap(), &b"\0\0\0\0\x03abc"[..]);
    }
}
