//! The memory that a message takes when it is decoded, estimated without its type.

/// The bytes of a decoded message without its fields, about: messages of configuration and of access logs have 100 to 700.
const MESSAGE: usize = 256;
/// The bytes of an element that is a string or bytes, without its content.
const STRING: usize = 48;
/// The bytes of a number.
const NUMBER: usize = 8;
/// Messages may be nested this deep; prost refuses deeper ones.
const MAX_DEPTH: usize = 100;

/// Estimates how many bytes the decoded form of a message takes in addition to the encoded one.
///
/// A field of two bytes may become a message of several hundred. What precedes a fault counts, too: a decoder has made it when it finds the
/// fault. Takes time in proportion to the number of fields.
#[must_use]
pub fn expansion(message: &[u8]) -> usize {
    let mut sum = 0;
    let _ = add_fields(&mut sum, message, MAX_DEPTH);
    sum
}

/// Adds the memory of the fields. Returns `None` for bytes that are not a message, after adding the fields before the fault.
fn add_fields(sum: &mut usize, mut bytes: &[u8], depth: usize) -> Option<()> {
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        if tag < 8 || tag > u64::from(u32::MAX) {
            return None;
        }
        *sum += match tag & 7 {
            0 => {
                varint(&mut bytes)?;
                NUMBER
            }
            1 => {
                bytes.split_off(..8)?;
                NUMBER
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let content = bytes.split_off(..length)?;
                let is_message =
                    depth.checked_sub(1).and_then(|depth| add_fields(sum, content, depth)).is_some();
                if is_message { MESSAGE } else { STRING }
            }
            // A group, whose fields a decoder skips.
            3 | 4 => 0,
            5 => {
                bytes.split_off(..4)?;
                NUMBER
            }
            _ => return None,
        };
    }
    Some(())
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_messages_count_although_they_have_two_bytes() {
        assert_eq!(expansion(&b"\x12\x00".repeat(1000)), 1000 * MESSAGE);
    }

    #[test]
    fn nested_messages_and_strings_count_by_their_kinds() {
        assert_eq!(expansion(b""), 0);
        // A number, a string, and a message with a number.
        assert_eq!(expansion(b"\x08\x01"), NUMBER);
        assert_eq!(expansion(b"\x0a\x04name"), STRING);
        assert_eq!(expansion(b"\x0a\x02\x08\x01"), MESSAGE + NUMBER);
        assert_eq!(expansion(b"\x09abcdefgh\x0dabcd"), 2 * NUMBER);
    }

    #[test]
    fn what_precedes_a_fault_or_a_group_counts() {
        let messages = b"\x1a\x00".repeat(1000);
        for tail in [&b"\x7b\x7c"[..], b"\x00", b"\x0e", b"\x08", b"\x09abc", b"\x0a\x05abc", &[0xff; 20]] {
            let faulty = [&messages, tail].concat();
            assert_eq!(expansion(&faulty), 1000 * MESSAGE, "{tail:?}");
            let nested =
                [&[0x0a, 0x80 | (faulty.len() & 0x7f) as u8, (faulty.len() >> 7) as u8], &*faulty].concat();
            assert!(expansion(&nested) >= 1000 * MESSAGE + STRING, "{tail:?}");
        }
        assert_eq!(expansion(b"\x0a\x04n\xffme"), STRING);
    }

    #[test]
    fn nesting_is_limited() {
        let mut message = Vec::new();
        for _ in 0..MAX_DEPTH + 10 {
            let mut outer = vec![0x0a, 0x80 | (message.len() & 0x7f) as u8, (message.len() >> 7) as u8];
            outer.append(&mut message);
            message = outer;
        }
        assert_eq!(expansion(&message), MAX_DEPTH * MESSAGE + STRING);
    }
}
