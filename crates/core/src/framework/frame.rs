//! gRPC framing: a length prefix before each message.

use prost::{
    Message,
    bytes::{BufMut as _, Bytes, BytesMut},
};

/// The size of the prefix in bytes: one byte of flags, four of length.
pub const FRAME_PREFIX: usize = 5;

/// Encodes a message behind its prefix, in one allocation.
pub fn frame(message: &impl Message) -> Bytes {
    with_prefix(message.encoded_len(), |frame| message.encode_raw(frame))
}

/// Puts an encoded message behind its prefix.
pub fn frame_encoded(message: &[u8]) -> Bytes {
    with_prefix(message.len(), |frame| frame.put_slice(message))
}

fn with_prefix(length: usize, message: impl FnOnce(&mut BytesMut)) -> Bytes {
    let mut frame = BytesMut::with_capacity(FRAME_PREFIX + length);
    frame.put_u8(0);
    // Responses are smaller than 4 GiB: they are made from requests, whose size is limited.
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message(&mut frame);
    frame.freeze()
}

/// Returns the message behind its prefix; `None` if the body is not one message, or a compressed one.
pub fn unframe(body: &[u8]) -> Option<&[u8]> {
    let (prefix, message) = body.split_first_chunk::<FRAME_PREFIX>()?;
    let [flags, length @ ..] = *prefix;
    let is_whole = usize::try_from(u32::from_be_bytes(length)) == Ok(message.len());
    (flags == 0 && is_whole).then_some(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_one_message_of_its_length() {
        assert_eq!(unframe(&frame(&"abc".to_owned())), Some(&b"\x0a\x03abc"[..]));
        assert_eq!(unframe(b"\0\0\0\0\0"), Some(&b""[..]));
        for body in [&b""[..], b"\0\0\0\0", b"\0\0\0\0\x02a", b"\0\0\0\0\x01ab", b"\x01\0\0\0\x01a"] {
            assert_eq!(unframe(body), None, "{body:?}");
        }
    }
}
