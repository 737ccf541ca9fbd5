//! Protobuf's wire format for messages whose type is known only at run time.

use prost::encoding::{WireType, encode_key, encode_varint};

pub(crate) fn bytes(number: u32, value: &[u8], message: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, message);
    encode_varint(value.len() as u64, message);
    message.extend_from_slice(value);
}

/// Writes a field whose length is not known in advance. One byte is reserved for the length; longer content is moved.
pub(crate) fn nested<E>(
    number: u32,
    message: &mut Vec<u8>,
    content: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    encode_key(number, WireType::LengthDelimited, message);
    let length_at = message.len();
    message.push(0);
    content(message)?;
    let length = message.len() - length_at - 1;
    if length < 0x80 {
        message[length_at] = length as u8;
    } else {
        let mut varint = Vec::with_capacity(5);
        encode_varint(length as u64, &mut varint);
        message.splice(length_at..=length_at, varint);
    }
    Ok(())
}

/// Writes a field like [`nested`], whose content cannot fail.
pub(crate) fn infallible_nested(number: u32, message: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    let _: Result<(), std::convert::Infallible> = nested(number, message, |message| {
        content(message);
        Ok(())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_any_size_are_written_before_their_content() {
        for length in [0, 1, 127, 128, 16_383, 16_384] {
            let mut message = Vec::new();
            let _: Result<(), ()> = nested(1, &mut message, |message| {
                message.resize(message.len() + length, 7);
                Ok(())
            });
            let mut expected = Vec::new();
            bytes(1, &vec![7; length], &mut expected);
            assert_eq!(message, expected);
        }
    }
}
