//! Constants in quotes.

use super::{Field, ParamsError, Typed, wire};
use mixer_adapter_core::value::{ValueType, parse_duration};

/// Returns the text of a constant, which begins and ends with the same quote; escapes are not resolved. A text in backquotes is an
/// expression.
pub(super) fn quoted(text: &str) -> Option<&str> {
    ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
}

/// Parses a quoted constant, whose text between the quotes is taken literally. Mixer writes it unchecked into any of
/// these messages, which corrupts all but those of strings; here it must be a valid constant of the field's type.
pub(super) fn typed_constant(
    number: u32,
    typed: Typed,
    literal: &str,
    path: &str,
) -> Result<Field, Vec<ParamsError>> {
    const SECOND: i64 = 1_000_000_000;
    let Typed::Of(value_type) = typed else {
        return Ok(constant_value(number, ValueType::String, |content| {
            wire::bytes(1, literal.as_bytes(), content);
        }));
    };
    let wrong = |example: &str| {
        ParamsError::single(path, format!("{literal:?} is not of type {value_type}; write it like {example}"))
    };
    Ok(match value_type {
        ValueType::IpAddress => {
            let addr: std::net::IpAddr = literal.parse().map_err(|_| wrong("ip(\"10.0.0.1\")"))?;
            let addr = mixer_adapter_core::value::IpAddress::from(addr);
            constant(number, |content| wire::bytes(1, &addr.value, content))
        }
        ValueType::Duration => {
            let nanos = parse_duration(literal).ok_or_else(|| wrong("\"1m30s\""))?;
            let length = prost_types::Duration { seconds: nanos / SECOND, nanos: (nanos % SECOND) as i32 };
            constant(number, |content| wire::bytes(1, &prost::Message::encode_to_vec(&length), content))
        }
        ValueType::Timestamp => {
            let instant: prost_types::Timestamp =
                literal.parse().map_err(|_| wrong("\"2019-05-06T07:08:09Z\""))?;
            constant(number, |content| wire::bytes(1, &prost::Message::encode_to_vec(&instant), content))
        }
        ValueType::StringMap => return Err(wrong("request.headers")),
        _ => constant(number, |content| wire::bytes(1, literal.as_bytes(), content)),
    })
}

fn constant(number: u32, content: impl FnOnce(&mut Vec<u8>)) -> Field {
    Field::Constant(message_field(number, content))
}

pub(super) fn constant_value(
    number: u32,
    value_type: ValueType,
    content: impl FnOnce(&mut Vec<u8>),
) -> Field {
    Field::ConstantValue(number, value_type, message_field(number, content))
}

fn message_field(number: u32, content: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let (mut field, mut inner) = (Vec::new(), Vec::new());
    content(&mut inner);
    wire::bytes(number, &inner, &mut field);
    field
}
