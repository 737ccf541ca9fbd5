//! Advice for expressions that are not of the type of their field.

use super::{ParamsError, literal::quoted};
use crate::expression::{Evaluated, Expression};
use mixer_adapter_core::value::{ValueType, parse_duration};

/// The error of a field whose expression is of another type.
pub(super) fn wrong_type(
    path: &str,
    wanted: ValueType,
    expression: &Expression,
    text: &str,
) -> Vec<ParamsError> {
    let actual = expression.value_type();
    let advice = match (wanted, expression.constant()) {
        (ValueType::String, Some(Evaluated::Duration(_))) => concatenation(text).map(|concatenation| {
            format!("a text that Go reads as a duration is one; write {concatenation} for the text")
        }),
        (ValueType::String, Some(_)) => Some(format!("write {:?} for the text", format!("{text:?}"))),
        (wanted, Some(_)) => Some(format!("write it like {}", example(wanted))),
        (_, None) => None,
    };
    let advice = advice.map_or_else(String::new, |advice| format!("; {advice}"));
    ParamsError::single(path, format!("the expression is of type {actual}; the field takes {wanted}{advice}"))
}

/// Writes a quoted duration as a concatenation of two strings that are not durations.
fn concatenation(text: &str) -> Option<String> {
    let content = quoted(text)?;
    let (at, _) = content.char_indices().next_back()?;
    let (start, end) = content.split_at(at);
    let is_text = [start, end].iter().all(|part| parse_duration(part).is_none());
    is_text.then(|| format!("{start:?} + {end:?}"))
}

/// A constant expression of a type.
fn example(value_type: ValueType) -> &'static str {
    match value_type {
        ValueType::Int64 => "42",
        ValueType::Double => "4.2",
        ValueType::Bool => "true",
        ValueType::Timestamp => "timestamp(\"2019-05-06T07:08:09Z\")",
        ValueType::IpAddress => "ip(\"10.0.0.1\")",
        ValueType::EmailAddress => "email(\"user@example.com\")",
        ValueType::Uri => "uri(\"http://example.com/\")",
        ValueType::DnsName => "dnsName(\"example.com\")",
        ValueType::Duration => "\"1m30s\"",
        ValueType::StringMap => "request.headers",
        ValueType::String | ValueType::Unspecified => "\"text\"",
    }
}
