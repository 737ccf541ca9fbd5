//! Words of requests that are not UTF-8, as headers of a proxy's clients may be.

use std::borrow::Cow;

use prost::encoding::{
    DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field,
};

/// The fields with words of a `CheckRequest` and of a `ReportRequest` (mixer/v1/check.proto and report.proto of istio/api 1.0 to 1.4):
/// the attributes' words, and the default words of a report.
const WORDS: [&[u32]; 2] = [&[1, 1], &[2]];

/// Returns an encoded request in which each byte of a word that is not UTF-8 is U+FFFD: Mixer, which does not look at them, answers such
/// requests. `None` for what cannot be decoded at all.
pub(super) fn with_valid_words(request: &[u8]) -> Option<Vec<u8>> {
    let mut valid = Vec::with_capacity(request.len() + 64);
    copy(request, &WORDS, &mut valid)?;
    Some(valid)
}

fn copy(mut message: &[u8], words: &[&[u32]], valid: &mut Vec<u8>) -> Option<()> {
    while !message.is_empty() {
        let field = message;
        let (number, wire_type) = decode_key(&mut message).ok()?;
        if wire_type != WireType::LengthDelimited {
            skip_field(wire_type, number, &mut message, DecodeContext::default()).ok()?;
            valid.extend_from_slice(&field[..field.len() - message.len()]);
            continue;
        }
        let length = usize::try_from(decode_varint(&mut message).ok()?).ok()?;
        let (content, rest) = message.split_at_checked(length)?;
        message = rest;
        let path = words.iter().filter_map(|path| path.split_first()).find(|(first, _)| **first == number);
        let content = match path {
            None => Cow::Borrowed(content),
            Some((_, [])) => match String::from_utf8_lossy(content) {
                Cow::Borrowed(_) => Cow::Borrowed(content),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            },
            Some((_, path)) => {
                let mut inner = Vec::with_capacity(content.len() + 64);
                copy(content, &[path], &mut inner)?;
                Cow::Owned(inner)
            }
        };
        encode_key(number, wire_type, valid);
        encode_varint(content.len() as u64, valid);
        valid.extend_from_slice(&content);
    }
    Some(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use mixer_adapter_engine::proto::istio::mixer::v1::{CheckRequest, CompressedAttributes, ReportRequest};
    use prost::Message as _;

    use super::*;

    fn attributes(word: &str) -> CompressedAttributes {
        let (words, strings) = (vec!["request.path".to_owned(), word.to_owned()], [(-1, -2)].into());
        CompressedAttributes { words, strings, ..CompressedAttributes::default() }
    }

    /// Replaces a letter by a byte that no text has.
    fn with_other_byte(encoded: &[u8]) -> Vec<u8> {
        encoded.iter().map(|byte| if *byte == b'~' { 0xff } else { *byte }).collect()
    }

    #[test]
    fn bytes_of_words_that_are_no_text_become_replacement_characters() {
        let check = |word: &str| CheckRequest {
            attributes: Some(attributes(word)),
            global_word_count: 7,
            deduplication_id: "id".to_owned(),
            ..CheckRequest::default()
        };
        let received = with_other_byte(&check("/admin~/~").encode_to_vec());
        assert!(CheckRequest::decode(&*received).is_err());
        let valid = with_valid_words(&received).unwrap();
        assert_eq!(CheckRequest::decode(&*valid).unwrap(), check("/admin\u{fffd}/\u{fffd}"));

        let report = |word: &str| ReportRequest {
            attributes: vec![attributes("/plain"), attributes(word)],
            default_words: vec!["a".to_owned(), word.to_owned()],
            ..ReportRequest::default()
        };
        let valid = with_valid_words(&with_other_byte(&report("~").encode_to_vec())).unwrap();
        assert_eq!(ReportRequest::decode(&*valid).unwrap(), report("\u{fffd}"));
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [&b"\x0a"[..], b"\x0a\x7f", b"\xff\xff", b"\x0a\x02\x0a\x05"] {
            assert_eq!(with_valid_words(bytes), None, "{bytes:?}");
        }
    }
}
