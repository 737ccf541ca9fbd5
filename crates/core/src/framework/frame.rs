//! gRPC framing: a length prefix before each message.

use prost::{
    Message,
    bytes::{BufMut as _, Bytes, BytesMut},
};

/// The size of the prefix in bytes: one byte of flags, four of length.
pub const FRAME_PREFIX: usize = 5;

/// Encodes a message behind its prefix, in one allocation.
pub fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(FRAME_PREFIX + length);
    frame.put_u8(0);
    // Responses are smaller than 4 GiB: they are made from requests, whose size is limited.
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut frame);
    frame.freeze()
}
