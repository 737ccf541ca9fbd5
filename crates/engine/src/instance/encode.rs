//! Encodes instances. As in Mixer, fields that are set are written even if they are zero or empty; adapters can
//! distinguish them from absent ones.

use prost::encoding::{self, bool, float, int32, int64, sfixed32, sfixed64, sint32, sint64, uint32};

use super::{Field, Scalar, Source, Typed};
use crate::{
    attribute::{Attributes, Reads},
    expression::{EvalError, Evaluated},
    wire,
};

/// An instance that could not be built for a request.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum InstanceError {
    /// The evaluation of an expression failed.
    #[error("{field}: {source}")]
    Eval { field: Box<str>, source: EvalError },
    /// A string that is not a value of the field's enum.
    #[error("{field}: {text:?} is not a value of {enumeration}")]
    NoEnumValue { field: Box<str>, text: String, enumeration: String },
}

pub(super) fn fields(
    fields: &[Field],
    attributes: Attributes<'_>,
    reads: &mut Reads,
    message: &mut Vec<u8>,
) -> Result<(), InstanceError> {
    for field in fields {
        match field {
            Field::Constant(bytes) | Field::ConstantValue(_, _, bytes) => message.extend_from_slice(bytes),
            Field::Scalar(_, _, source) | Field::Typed(_, _, source) => {
                value(field, &eval(source, attributes, reads)?, message)?;
            }
            Field::Message(number, content) => {
                wire::nested(*number, message, |message| self::fields(content, attributes, reads, message))?;
            }
            Field::Packed(number, items) => {
                wire::nested(*number, message, |message| packed(items, attributes, reads, message))?;
            }
        }
    }
    Ok(())
}

/// Encodes a field with a single value.
pub(super) fn value(
    field: &Field,
    value: &Evaluated<'_>,
    message: &mut Vec<u8>,
) -> Result<(), InstanceError> {
    match field {
        Field::Scalar(number, kind, source) => scalar(*number, kind, source, value, message),
        Field::Typed(number, typed, _) => wire::nested(*number, message, |message| {
            match typed {
                Typed::Value => policy_value(value, message),
                Typed::Of(_) => policy_message(value, message),
            }
            Ok(())
        }),
        Field::Constant(_) | Field::ConstantValue(..) | Field::Message(..) | Field::Packed(..) => Ok(()),
    }
}

pub(super) fn eval<'a>(
    source: &'a Source,
    attributes: Attributes<'a>,
    reads: &mut Reads,
) -> Result<Evaluated<'a>, InstanceError> {
    let value = source.expression.eval(attributes, reads);
    value.map_err(|error| InstanceError::Eval { field: source.path.clone(), source: error })
}

/// Encodes the items without keys, which were compiled with each item.
fn packed(
    items: &[Field],
    attributes: Attributes<'_>,
    reads: &mut Reads,
    message: &mut Vec<u8>,
) -> Result<(), InstanceError> {
    let mut item = Vec::new();
    for field in items {
        item.clear();
        fields(std::slice::from_ref(field), attributes, reads, &mut item)?;
        let mut rest = &item[..];
        if encoding::decode_key(&mut rest).is_ok() {
            message.extend_from_slice(rest);
        }
    }
    Ok(())
}

fn scalar(
    number: u32,
    scalar: &Scalar,
    source: &Source,
    value: &Evaluated<'_>,
    message: &mut Vec<u8>,
) -> Result<(), InstanceError> {
    match (scalar, value) {
        (Scalar::Enum(descriptor), Evaluated::String(text)) => {
            let Some(value) = descriptor.get_value_by_name(text) else {
                return Err(InstanceError::NoEnumValue {
                    field: source.path.clone(),
                    text: text.clone().into_owned(),
                    enumeration: descriptor.name().to_owned(),
                });
            };
            int32::encode(number, &value.number(), message);
        }
        (_, Evaluated::String(text)) => wire::bytes(number, text.as_bytes(), message),
        (_, Evaluated::Int64(value)) => integer(number, scalar, *value, message),
        (_, Evaluated::Double(value)) => double(number, scalar, *value, message),
        (_, Evaluated::Bool(truth)) => bool::encode(number, truth, message),
        // The compiler accepts no other type.
        _ => {}
    }
    Ok(())
}

/// As in Mixer, numbers are truncated to 32 bits.
pub(super) fn integer(number: u32, scalar: &Scalar, value: i64, message: &mut Vec<u8>) {
    match scalar {
        Scalar::Sint64 => sint64::encode(number, &value, message),
        Scalar::Sint32 => sint32::encode(number, &(value as i32), message),
        Scalar::Int32 | Scalar::Enum(_) => int32::encode(number, &(value as i32), message),
        Scalar::Uint32 => uint32::encode(number, &(value as u32), message),
        Scalar::Fixed64 => sfixed64::encode(number, &value, message),
        Scalar::Fixed32 => sfixed32::encode(number, &(value as i32), message),
        _ => int64::encode(number, &value, message),
    }
}

pub(super) fn double(number: u32, scalar: &Scalar, value: f64, message: &mut Vec<u8>) {
    match scalar {
        Scalar::Float => float::encode(number, &(value as f32), message),
        _ => encoding::double::encode(number, &value, message),
    }
}

/// Encodes the content of `istio.policy.v1beta1.Value`.
fn policy_value(value: &Evaluated<'_>, message: &mut Vec<u8>) {
    match value {
        Evaluated::String(text) => wire::bytes(1, text.as_bytes(), message),
        Evaluated::Int64(number) => int64::encode(2, number, message),
        Evaluated::Double(number) => encoding::double::encode(3, number, message),
        Evaluated::Bool(truth) => bool::encode(4, truth, message),
        Evaluated::IpAddress(_) => typed_value(5, value, message),
        Evaluated::Timestamp(_) => typed_value(6, value, message),
        Evaluated::Duration(_) => typed_value(7, value, message),
        Evaluated::EmailAddress(_) => typed_value(8, value, message),
        Evaluated::DnsName(_) => typed_value(9, value, message),
        Evaluated::Uri(_) => typed_value(10, value, message),
        Evaluated::StringMap(_) => typed_value(11, value, message),
    }
}

fn typed_value(number: u32, value: &Evaluated<'_>, message: &mut Vec<u8>) {
    wire::infallible_nested(number, message, |message| policy_message(value, message));
}

/// Encodes the content of a message of `istio.policy.v1beta1` with a single value.
fn policy_message(value: &Evaluated<'_>, message: &mut Vec<u8>) {
    match value {
        Evaluated::String(text)
        | Evaluated::EmailAddress(text)
        | Evaluated::DnsName(text)
        | Evaluated::Uri(text) => wire::bytes(1, text.as_bytes(), message),
        Evaluated::IpAddress(address) => wire::bytes(1, address, message),
        Evaluated::Timestamp(instant) => seconds(instant.seconds, instant.nanos, message),
        Evaluated::Duration(nanos) => {
            seconds(nanos / 1_000_000_000, (nanos % 1_000_000_000) as i32, message);
        }
        Evaluated::StringMap(map) => {
            for (key, value) in map.iter() {
                wire::infallible_nested(1, message, |entry| {
                    wire::bytes(1, key.as_bytes(), entry);
                    wire::bytes(2, value.as_bytes(), entry);
                });
            }
        }
        // Values of these types are not in a message.
        Evaluated::Int64(_) | Evaluated::Double(_) | Evaluated::Bool(_) => {}
    }
}

/// Encodes a Timestamp or Duration in field 1.
fn seconds(seconds: i64, nanos: i32, message: &mut Vec<u8>) {
    wire::infallible_nested(1, message, |message| {
        int64::encode(1, &seconds, message);
        int32::encode(2, &nanos, message);
    });
}

/// Encodes the content of the `Type` message for these fields: `Value` fields as their types, and messages and maps
/// of them, nothing else (docs/behaviour/code-generator.md#field-types).
pub(super) fn types(fields: &[Field], message: &mut Vec<u8>) {
    for field in fields {
        match field {
            Field::Typed(number, Typed::Value, source) => {
                int32::encode(*number, &(source.expression.value_type() as i32), message);
            }
            Field::ConstantValue(number, value_type, _) => {
                int32::encode(*number, &(*value_type as i32), message)
            }
            Field::Message(number, content) if has_types(content) => {
                wire::infallible_nested(*number, message, |message| {
                    // The key of a map entry precedes its value.
                    if let [Field::Constant(key), Field::Typed(2, ..) | Field::ConstantValue(2, ..)] =
                        &content[..]
                    {
                        message.extend_from_slice(key);
                    }
                    types(content, message);
                });
            }
            _ => {}
        }
    }
}

fn has_types(fields: &[Field]) -> bool {
    fields.iter().any(|field| match field {
        Field::Typed(_, Typed::Value, _) | Field::ConstantValue(..) => true,
        Field::Message(_, content) => has_types(content),
        _ => false,
    })
}
