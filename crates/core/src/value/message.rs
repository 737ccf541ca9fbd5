//! Encoding of `Value`: a oneof of eleven fields, decoded directly into the enum.

use prost::bytes::{Buf, BufMut};
use prost::{
    DecodeError, Message,
    encoding::{DecodeContext, WireType, bool, double, int64, message, skip_field, string},
};

use super::Value;

/// Implements the encoding from the fields of the oneof: number, variant and codec.
macro_rules! oneof {
    ($($tag:literal $kind:ident $codec:ident,)*) => {
        impl Message for Value {
            fn encode_raw(&self, buf: &mut impl BufMut) {
                match self {
                    Value::Unspecified => {}
                    $(Value::$kind(inner) => $codec::encode($tag, inner, buf),)*
                }
            }

            /// Merges into the current value if the kind is the same, as protobuf requires for messages in a oneof.
            fn merge_field(
                &mut self,
                tag: u32,
                wire_type: WireType,
                buf: &mut impl Buf,
                ctx: DecodeContext,
            ) -> Result<(), DecodeError> {
                match tag {
                    $($tag => {
                        let mut inner = match std::mem::take(self) {
                            Value::$kind(inner) => inner,
                            _ => Default::default(),
                        };
                        $codec::merge(wire_type, &mut inner, buf, ctx)?;
                        *self = Value::$kind(inner);
                        Ok(())
                    })*
                    _ => skip_field(wire_type, tag, buf, ctx),
                }
            }

            fn encoded_len(&self) -> usize {
                match self {
                    Value::Unspecified => 0,
                    $(Value::$kind(inner) => $codec::encoded_len($tag, inner),)*
                }
            }

            fn clear(&mut self) {
                *self = Value::Unspecified;
            }
        }
    };
}

oneof! {
    1 String string,
    2 Int64 int64,
    3 Double double,
    4 Bool bool,
    5 IpAddress message,
    6 TimeStamp message,
    7 Duration message,
    8 EmailAddress message,
    9 DnsName message,
    10 Uri message,
    11 StringMap message,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_scalars_are_values_and_an_empty_message_is_unspecified() {
        assert_eq!(Value::decode(&[0x10, 0x00][..]), Ok(Value::Int64(0)));
        assert_eq!(Value::decode(&[0x0a, 0x00][..]), Ok(Value::String(String::new())));
        assert_eq!(Value::decode(&[][..]), Ok(Value::Unspecified));
    }

    #[test]
    fn the_last_kind_on_the_wire_wins() {
        assert_eq!(Value::decode(&[0x0a, 0x01, b'x', 0x20, 0x01][..]), Ok(Value::Bool(true)));
    }

    #[test]
    fn unknown_fields_are_skipped_and_wrong_wire_types_refused() {
        assert_eq!(Value::decode(&[0x60, 0x07][..]), Ok(Value::Unspecified));
        assert!(Value::decode(&[0x12, 0x00][..]).is_err());
    }
}
