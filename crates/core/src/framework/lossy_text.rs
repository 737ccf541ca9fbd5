//! Messages whose text need not be UTF-8, as headers of a proxy's clients may be: C++ and Go send them, and Mixer reads them.

use std::borrow::Cow;

use prost::{
    DecodeError, Message,
    bytes::Bytes,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field},
};
use prost_reflect::{Kind, MessageDescriptor};

/// Nested messages that are searched; prost decodes no more.
const MAX_DEPTH: usize = 100;

/// Decodes a message, with U+FFFD in place of bytes of text that are not UTF-8. `descriptor` describes it, and is called for such
/// messages only.
///
/// # Errors
/// The message cannot be decoded for another reason.
pub fn decode<M: Message + Default>(
    encoded: Bytes,
    descriptor: impl FnOnce() -> Option<MessageDescriptor>,
) -> Result<M, DecodeError> {
    M::decode(encoded.clone()).or_else(|error| {
        match descriptor().and_then(|descriptor| with_valid_text(&encoded, &descriptor, MAX_DEPTH)) {
            Some(Cow::Owned(valid)) => M::decode(&*valid),
            _ => Err(error),
        }
    })
}

/// Returns an encoded message whose text is valid. `None` for what cannot be decoded at all.
fn with_valid_text<'a>(
    encoded: &'a [u8],
    descriptor: &MessageDescriptor,
    depth: usize,
) -> Option<Cow<'a, [u8]>> {
    // The copied bytes and the rest of the message; nothing is copied before the first change.
    let (mut valid, mut copied, mut rest) = (Vec::new(), 0, encoded);
    while !rest.is_empty() {
        let start = encoded.len() - rest.len();
        let (number, wire_type) = decode_key(&mut rest).ok()?;
        if wire_type != WireType::LengthDelimited {
            skip_field(wire_type, number, &mut rest, DecodeContext::default()).ok()?;
            continue;
        }
        let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
        let content;
        (content, rest) = rest.split_at_checked(length)?;
        let changed = match descriptor.get_field(number).map(|field| field.kind()) {
            Some(Kind::String) => match String::from_utf8_lossy(content) {
                Cow::Borrowed(_) => continue,
                Cow::Owned(text) => text.into_bytes(),
            },
            Some(Kind::Message(inner)) => match with_valid_text(content, &inner, depth.checked_sub(1)?)? {
                Cow::Borrowed(_) => continue,
                Cow::Owned(message) => message,
            },
            _ => continue,
        };
        valid.extend_from_slice(&encoded[copied..start]);
        encode_key(number, wire_type, &mut valid);
        encode_varint(changed.len() as u64, &mut valid);
        valid.extend_from_slice(&changed);
        copied = encoded.len() - rest.len();
    }
    if copied == 0 {
        return Some(Cow::Borrowed(encoded));
    }
    valid.extend_from_slice(&encoded[copied..]);
    Some(Cow::Owned(valid))
}

#[cfg(test)]
mod tests {
    use prost_reflect::ReflectMessage;
    use prost_types::{Any, FileDescriptorProto, Struct, Value, value::Kind as Json};

    use super::*;

    /// Replaces a letter by a byte that no text has.
    fn with_other_byte(encoded: &[u8]) -> Bytes {
        encoded.iter().map(|byte| if *byte == b'~' { 0xff } else { *byte }).collect()
    }

    fn decoded<M: Message + Default + ReflectMessage>(encoded: Bytes) -> Result<M, DecodeError> {
        decode(encoded, || Some(M::default().descriptor()))
    }

    #[test]
    fn bytes_of_text_that_are_not_utf_8_become_replacement_characters() {
        let text = |text: &str| Some(Value { kind: Some(Json::StringValue(text.to_owned())) });
        let fields = |value: &str| -> Struct {
            let values = [("plain", "a"), (value, value)];
            let fields =
                values.map(|(name, value): (&str, &str)| (name.to_owned(), text(value).unwrap_or_default()));
            Struct { fields: fields.into() }
        };
        let received = with_other_byte(&fields("/admin~/~").encode_to_vec());
        assert!(Struct::decode(received.clone()).is_err());
        assert_eq!(decoded::<Struct>(received), Ok(fields("/admin\u{fffd}/\u{fffd}")));

        let file = |name: &str| FileDescriptorProto {
            name: Some(name.to_owned()),
            dependency: vec![name.to_owned(), "b".to_owned()],
            public_dependency: vec![3, 70_000],
            ..FileDescriptorProto::default()
        };
        let received = with_other_byte(&file("~").encode_to_vec());
        assert_eq!(decoded::<FileDescriptorProto>(received), Ok(file("\u{fffd}")));
    }

    #[test]
    fn bytes_that_are_no_text_remain() {
        let any = |name: &str| Any { type_url: name.to_owned(), value: b"~~".to_vec() };
        let received = with_other_byte(&any("~").encode_to_vec());
        let expected = Any { type_url: "\u{fffd}".to_owned(), value: vec![0xff, 0xff] };
        assert_eq!(decoded::<Any>(received), Ok(expected));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [&b"\x0a"[..], b"\x0a\x7f", b"\xff\xff", b"\x0a\x02\x0a\x05"] {
            assert!(decoded::<Struct>(Bytes::copy_from_slice(bytes)).is_err(), "{bytes:?}");
        }
    }

    /// Lists in lists, around a text that is no UTF-8.
    #[test]
    fn messages_are_nested_at_most_as_deep_as_they_can_be_decoded() {
        let mut nested = vec![0x1a, 1, 0xff];
        for _ in 0..1_000 {
            for key in [0x0a, 0x32] {
                let mut outer = vec![key];
                encode_varint(nested.len() as u64, &mut outer);
                outer.append(&mut nested);
                nested = outer;
            }
        }
        assert!(decoded::<Value>(nested.into()).is_err());
    }
}
