//! Encoding of `Value`: a oneof of eleven fields, decoded directly into the enum.

use prost::bytes::{Buf, BufMut};
use prost::{
    DecodeError, Message,
    encoding::{DecodeContext, WireType, bool, double, int64, message, skip_field, string},
};

use super::Value;

/// Merges into the current value if the kind is the same, as protobuf requires for messages in a oneof.
macro_rules! merge_message {
    ($value:expr, $kind:ident, $wire_type:expr, $buf:expr, $ctx:expr) => {{
        let mut inner = match std::mem::take($value) {
            Value::$kind(inner) => inner,
            _ => Default::default(),
        };
        message::merge($wire_type, &mut inner, $buf, $ctx)?;
        *$value = Value::$kind(inner);
        Ok(())
    }};
}

macro_rules! merge_scalar {
    ($value:expr, $kind:ident, $codec:ident, $wire_type:expr, $buf:expr, $ctx:expr) => {{
        let mut inner = Default::default();
        $codec::merge($wire_type, &mut inner, $buf, $ctx)?;
        *$value = Value::$kind(inner);
        Ok(())
    }};
}

impl Message for Value {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        match self {
            Value::Unspecified => {}
            Value::String(inner) => string::encode(1, inner, buf),
            Value::Int64(inner) => int64::encode(2, inner, buf),
            Value::Double(inner) => double::encode(3, inner, buf),
            Value::Bool(inner) => bool::encode(4, inner, buf),
            Value::IpAddress(inner) => message::encode(5, inner, buf),
            Value::TimeStamp(inner) => message::encode(6, inner, buf),
            Value::Duration(inner) => message::encode(7, inner, buf),
            Value::EmailAddress(inner) => message::encode(8, inner, buf),
            Value::DnsName(inner) => message::encode(9, inner, buf),
            Value::Uri(inner) => message::encode(10, inner, buf),
            Value::StringMap(inner) => message::encode(11, inner, buf),
        }
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        match tag {
            1 => merge_scalar!(self, String, string, wire_type, buf, ctx),
            2 => merge_scalar!(self, Int64, int64, wire_type, buf, ctx),
            3 => merge_scalar!(self, Double, double, wire_type, buf, ctx),
            4 => merge_scalar!(self, Bool, bool, wire_type, buf, ctx),
            5 => merge_message!(self, IpAddress, wire_type, buf, ctx),
            6 => merge_message!(self, TimeStamp, wire_type, buf, ctx),
            7 => merge_message!(self, Duration, wire_type, buf, ctx),
            8 => merge_message!(self, EmailAddress, wire_type, buf, ctx),
            9 => merge_message!(self, DnsName, wire_type, buf, ctx),
            10 => merge_message!(self, Uri, wire_type, buf, ctx),
            11 => merge_message!(self, StringMap, wire_type, buf, ctx),
            _ => skip_field(wire_type, tag, buf, ctx),
        }
    }

    fn encoded_len(&self) -> usize {
        match self {
            Value::Unspecified => 0,
            Value::String(inner) => string::encoded_len(1, inner),
            Value::Int64(inner) => int64::encoded_len(2, inner),
            Value::Double(inner) => double::encoded_len(3, inner),
            Value::Bool(inner) => bool::encoded_len(4, inner),
            Value::IpAddress(inner) => message::encoded_len(5, inner),
            Value::TimeStamp(inner) => message::encoded_len(6, inner),
            Value::Duration(inner) => message::encoded_len(7, inner),
            Value::EmailAddress(inner) => message::encoded_len(8, inner),
            Value::DnsName(inner) => message::encoded_len(9, inner),
            Value::Uri(inner) => message::encoded_len(10, inner),
            Value::StringMap(inner) => message::encoded_len(11, inner),
        }
    }

    fn clear(&mut self) {
        *self = Value::Unspecified;
    }
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
