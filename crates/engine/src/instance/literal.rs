//! Constants in quotes.

use std::net::IpAddr;

use prost::Message as _;

use super::{Field, ParamsError, Typed};
use crate::wire;
use mixer_adapter_core::value::{self, ValueType, parse_duration};

/// Returns the text of a constant, which begins and ends with the same quote; escapes are not resolved. A text in backquotes is an
/// expression.
pub(super) fn quoted(text: &str) -> Option<&str> {
    ['"', '\''].iter().find_map(|quote| text.strip_prefix(*quote)?.strip_suffix(*quote))
}

/// Parses a quoted constant; the text between the quotes is literal. Mixer writes it unchecked, which corrupts messages other than
/// strings; here it must be a valid constant of the field's type.
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
    let (content, example) = match value_type {
        ValueType::IpAddress => (
            literal.parse().ok().map(|addr: IpAddr| value::IpAddress::from(addr).value.to_vec()),
            "ip(\"10.0.0.1\")",
        ),
        ValueType::Duration => (
            parse_duration(literal).map(|nanos| {
                let (seconds, nanos) = (nanos / SECOND, (nanos % SECOND) as i32);
                prost_types::Duration { seconds, nanos }.encode_to_vec()
            }),
            "\"1m30s\"",
        ),
        ValueType::Timestamp => (
            literal.parse().ok().map(|instant: prost_types::Timestamp| instant.encode_to_vec()),
            "\"2019-05-06T07:08:09Z\"",
        ),
        ValueType::StringMap => (None, "request.headers"),
        _ => (Some(literal.as_bytes().to_vec()), ""),
    };
    let Some(content) = content else {
        let reason = format!("{literal:?} is not of type {value_type}; write it like {example}");
        return Err(ParamsError::single(path, reason));
    };
    Ok(Field::Constant(message_field(number, |message| wire::bytes(1, &content, message))))
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
