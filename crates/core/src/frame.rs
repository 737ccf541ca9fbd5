//! gRPC framing: a message with its length before it.

use prost::{
    Message,
    bytes::{BufMut as _, Bytes, BytesMut},
};

/// The length of a gRPC message's prefix: one byte of flags, four of length.
pub const FRAME_PREFIX: usize = 5;

/// A message with its gRPC prefix, encoded in one piece.
pub fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut frame = BytesMut::with_capacity(FRAME_PREFIX + length);
    frame.put_u8(0);
    // Answers are far below 4 GiB: requests are bounded, and answers are made from them.
    frame.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    message.encode_raw(&mut frame);
    frame.freeze()
}
