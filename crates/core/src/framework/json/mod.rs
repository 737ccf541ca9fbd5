//! Reads messages from JSON by their descriptor: configurations (also YAML and `google.protobuf.Struct`) and instances.
//!
//! The format is proto3 JSON, with Go's durations as in a real Mixer
//! (docs/behaviour/adapter-calls.md#configuration-in-calls).

mod attribute_values;
mod envoy_forms;
mod lenient;

use std::collections::HashSet;

use prost::{Message as _, bytes::Bytes};
use prost_reflect::{Cardinality, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Map, Number, Value as Json};

use super::suggest::{suggest, suggestion};
use crate::value::parse_duration;
use attribute_values::expand;

pub use lenient::read_json_leniently;

/// The field with the type of a `google.protobuf.Any` in JSON.
const ANY_TYPE: &str = "@type";

/// A fault of a message in JSON.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", if field.is_empty() { String::new() } else { format!("{field}: ") })]
pub struct JsonError {
    /// The path of the field, `quotas[0].max_amount`; empty for the message itself.
    pub field: String,
    /// The fault and the expected value.
    pub reason: String,
    /// Whether the message has no field of this or a similar name: the field may exist in a later release.
    pub may_be_newer: bool,
}

impl JsonError {
    /// Creates an error of the message itself.
    pub fn whole(reason: impl Into<String>) -> Self {
        Self::at("", reason)
    }

    /// Creates an error of the field at that path.
    pub fn at(path: &str, reason: impl Into<String>) -> Self {
        Self { field: path.to_owned(), reason: reason.into(), may_be_newer: false }
    }
}

/// Maximum number of faults of one message that are reported.
const MAX_ERRORS: usize = 100;

/// Part of a message, or all its faults.
type Read = Result<Json, Vec<JsonError>>;

fn error_at<T>(path: &str, reason: impl Into<String>) -> Result<T, Vec<JsonError>> {
    Err(vec![JsonError::at(path, reason)])
}

/// Collects all parts, or their faults up to `max_errors`. The parts after the last of these are not read.
fn collect<T, C: FromIterator<T>>(
    max_errors: usize,
    parts: impl Iterator<Item = Result<T, Vec<JsonError>>>,
) -> Result<C, Vec<JsonError>> {
    let mut errors = Vec::new();
    let read = parts.map_while(|part| match part {
        Ok(part) => Some(Some(part)),
        Err(found) => {
            errors.extend(found);
            (errors.len() < max_errors).then_some(None)
        }
    });
    let collected: C = read.flatten().collect();
    errors.truncate(max_errors);
    if errors.is_empty() { Ok(collected) } else { Err(errors) }
}

/// Same as [`read_json`], but returns the encoded message.
pub fn read_params(message: &MessageDescriptor, json: Json) -> Result<Bytes, JsonError> {
    read_json(message, json).map(|message| message.encode_to_vec().into())
}

/// Reads a message from JSON.
///
/// Field names are as in the proto file or in camelCase, `null` is ignored, and an unknown field is an error. Attribute
/// values have short forms: `"x"` for `{"string_value": "x"}`, `"1.2.3.4"` for the bytes of an address.
///
/// # Errors
/// The first fault, with the path of its field.
pub fn read_json(message: &MessageDescriptor, json: Json) -> Result<DynamicMessage, JsonError> {
    Reader::new(message, 1).read(message, json).map_err(first)
}

/// Same as [`read_json`], but ignores unknown fields: the peer may have a newer version of the message.
///
/// # Errors
/// The first fault, with the path of its field.
pub fn read_json_of_peer(message: &MessageDescriptor, json: Json) -> Result<DynamicMessage, JsonError> {
    Reader { ignores_unknown: true, ..Reader::new(message, 1) }.read(message, json).map_err(first)
}

fn first(mut errors: Vec<JsonError>) -> JsonError {
    errors.swap_remove(0)
}

/// Same as [`read_json`], but returns all faults, 100 at most.
///
/// # Errors
/// At least one fault, in the order of the fields.
pub fn read_json_all(message: &MessageDescriptor, json: Json) -> Result<DynamicMessage, Vec<JsonError>> {
    Reader::new(message, MAX_ERRORS).read(message, json)
}

/// Reads messages until it has found a number of faults.
#[derive(Clone, Copy)]
struct Reader {
    max_errors: usize,
    ignores_unknown: bool,
    /// Whether the message is a resource of Envoy, which reads more forms of values.
    is_envoys: bool,
}

impl Reader {
    fn new(message: &MessageDescriptor, max_errors: usize) -> Self {
        let is_envoys = message.full_name().starts_with("envoy.");
        Self { max_errors, ignores_unknown: false, is_envoys }
    }

    fn read(self, message: &MessageDescriptor, json: Json) -> Result<DynamicMessage, Vec<JsonError>> {
        let json = self.read_message(message, json, "")?;
        deserialize(message, json.clone()).map_err(|error| {
            // Only the message checks some values, such as numbers out of range. Each field is read separately.
            let fields = json.as_object().into_iter().flatten();
            let alone =
                fields.map(|(name, value)| Json::Object(Map::from_iter([(name.clone(), value.clone())])));
            let mut errors: Vec<JsonError> =
                alone.filter_map(|field| deserialize(message, field).err()).take(self.max_errors).collect();
            if errors.is_empty() {
                errors.push(error);
            }
            errors
        })
    }

    fn read_message(self, message: &MessageDescriptor, json: Json, path: &str) -> Read {
        let json = if self.is_envoys { envoy_forms::well_known(message, json) } else { json };
        if message.full_name() == "google.protobuf.Duration" {
            return read_duration(json, path);
        }
        if message.full_name() == "google.protobuf.Any" {
            return self.read_any(message, json, path);
        }
        if message.full_name().starts_with("google.protobuf.") {
            return Ok(json);
        }
        let json = expand(message.full_name(), json).or_else(|error| error_at(path, error.0))?;
        let Json::Object(fields) = json else {
            return error_at(path, format!("expected an object with the fields of {}", message.full_name()));
        };
        let mut seen = HashSet::new();
        let fields = fields.into_iter().map(|(name, value)| {
            let Some(field) =
                message.get_field_by_name(&name).or_else(|| message.get_field_by_json_name(&name))
            else {
                if self.ignores_unknown {
                    return Ok(None);
                }
                let fields: Vec<_> = message.fields().collect();
                let known: Vec<_> = fields.iter().map(FieldDescriptor::name).collect();
                let reason = format!("no such field; {}", suggestion(&name, &known));
                let may_be_newer = suggest(&name, known.iter().copied()).is_none();
                return Err(vec![JsonError { may_be_newer, ..JsonError::at(&join(path, &name), reason) }]);
            };
            if value.is_null() {
                return Ok(None);
            }
            if !seen.insert(field.number()) {
                let reason = format!("given twice, as {} and {}", field.name(), field.json_name());
                return error_at(&join(path, field.name()), reason);
            }
            Ok(Some((field.name().to_owned(), self.read_field(&field, value, &join(path, field.name()))?)))
        });
        collect(self.max_errors, fields.filter_map(Result::transpose)).map(Json::Object)
    }

    /// Reads a `google.protobuf.Any` as a message of the type that it names.
    fn read_any(self, any: &MessageDescriptor, mut json: Json, path: &str) -> Read {
        let Some(fields) = json.as_object_mut() else {
            return error_at(path, format!("expected an object with @type, not {}", described(&json)));
        };
        if fields.is_empty() {
            return Ok(json);
        }
        let named = fields.remove(ANY_TYPE);
        let Some(type_url) = named.as_ref().and_then(Json::as_str) else {
            let reason = "@type is missing; write it like type.googleapis.com/google.protobuf.Empty";
            return error_at(path, reason);
        };
        let name = type_url.rsplit('/').next().unwrap_or_default();
        let Some(message) = any.parent_pool().get_message_by_name(name) else {
            return error_at(&join(path, ANY_TYPE), format!("type {name} is not known"));
        };
        // Messages with a special JSON form have it under `value`.
        let mut json = json;
        if !name.starts_with("google.protobuf.") {
            json = self.read_message(&message, json, path)?;
        }
        json[ANY_TYPE] = type_url.into();
        Ok(json)
    }

    fn read_field(self, field: &FieldDescriptor, json: Json, path: &str) -> Read {
        if field.is_map() {
            let Json::Object(entries) = json else {
                return error_at(path, "expected an object: the field is a map");
            };
            let value_kind = match field.kind() {
                Kind::Message(entry) => entry.map_entry_value_field().kind(),
                other => other,
            };
            let entries = entries.into_iter().map(|(key, value)| {
                let value = self.read_kind(&value_kind, value, &format!("{path}[{key:?}]"))?;
                Ok((key, value))
            });
            return collect(self.max_errors, entries).map(Json::Object);
        }
        if field.cardinality() == Cardinality::Repeated {
            let Json::Array(items) = json else {
                return error_at(path, "expected a list: the field is repeated");
            };
            let items = items
                .into_iter()
                .enumerate()
                .map(|(index, item)| self.read_kind(&field.kind(), item, &format!("{path}[{index}]")));
            return collect(self.max_errors, items).map(Json::Array);
        }
        self.read_kind(&field.kind(), json, path)
    }

    fn read_kind(self, kind: &Kind, json: Json, path: &str) -> Read {
        let json = match kind {
            Kind::Bool if self.is_envoys => envoy_forms::bool_of_text(json),
            _ => json,
        };
        let (expected, got) = match (kind, json) {
            (Kind::Message(message), json) => return self.read_message(message, json, path),
            (Kind::Enum(names), json) => return self.read_enum(names, json, path),
            (Kind::Double | Kind::Float, json @ (Json::Number(_) | Json::String(_))) => return Ok(json),
            (Kind::Double | Kind::Float, json) => ("a number", json),
            (Kind::Bool, json @ Json::Bool(_)) => return Ok(json),
            (Kind::Bool, json) => ("true or false", json),
            (Kind::String, json @ Json::String(_)) => return Ok(json),
            (Kind::String, json @ (Json::Number(_) | Json::Bool(_))) => ("text in quotes", json),
            (Kind::String, json) => ("text", json),
            (Kind::Bytes, json @ Json::String(_)) => return Ok(json),
            (Kind::Bytes, json) => ("base64", json),
            (_, Json::Number(number)) => match whole_number(&number) {
                Some(whole) => return Ok(Json::Number(whole)),
                None => ("a whole number", Json::Number(number)),
            },
            (_, Json::String(text)) if text.parse::<f64>().is_ok() => return Ok(Json::String(text)),
            (_, json) => ("a whole number", json),
        };
        error_at(path, format!("expected {expected}, not {}", described(&got)))
    }

    fn read_enum(self, names: &EnumDescriptor, json: Json, path: &str) -> Read {
        let values: Vec<_> = names.values().collect();
        let known: Vec<_> = values.iter().map(prost_reflect::EnumValueDescriptor::name).collect();
        match json {
            Json::String(name) if known.contains(&name.as_str()) => Ok(Json::String(name)),
            Json::String(name) => {
                let same = known.iter().find(|other| self.is_envoys && other.eq_ignore_ascii_case(&name));
                if let Some(same) = same {
                    return Ok(Json::from(*same));
                }
                let reason =
                    format!("{name:?} is not a value of {}; {}", names.name(), suggestion(&name, &known));
                error_at(path, reason)
            }
            other => match other.as_number().and_then(whole_number) {
                Some(number) => Ok(Json::Number(number)),
                None => {
                    let reason = format!("expected one of {}, not {}", known.join(", "), described(&other));
                    error_at(path, reason)
                }
            },
        }
    }
}

fn deserialize(message: &MessageDescriptor, json: Json) -> Result<DynamicMessage, JsonError> {
    let mut path = serde_path_to_error::Track::new();
    let reader = serde_path_to_error::Deserializer::new(json, &mut path);
    DynamicMessage::deserialize(message.clone(), reader)
        .map_err(|error| JsonError::at(&path.path().to_string(), error.to_string()))
}

/// Converts a `google.protobuf.Struct` to JSON. Numbers stay floating-point: a Struct has no integers, and [`read_json`]
/// accepts `5.0` for `5`.
pub fn struct_to_json(fields: prost_types::Struct) -> Map<String, Json> {
    fields.fields.into_iter().map(|(name, value)| (name, value_to_json(value))).collect()
}

fn value_to_json(value: prost_types::Value) -> Json {
    use prost_types::value::Kind;
    match value.kind {
        None | Some(Kind::NullValue(_)) => Json::Null,
        Some(Kind::NumberValue(number)) => Number::from_f64(number).map_or(Json::Null, Json::Number),
        Some(Kind::StringValue(text)) => Json::String(text),
        Some(Kind::BoolValue(truth)) => Json::Bool(truth),
        Some(Kind::StructValue(fields)) => Json::Object(struct_to_json(fields)),
        Some(Kind::ListValue(list)) => Json::Array(list.values.into_iter().map(value_to_json).collect()),
    }
}

fn described(json: &Json) -> String {
    match json {
        Json::Null => "nothing".to_owned(),
        Json::Bool(truth) => truth.to_string(),
        Json::Number(number) => number.to_string(),
        Json::String(text) => format!("{text:?}"),
        Json::Array(_) => "a list".to_owned(),
        Json::Object(_) => "an object".to_owned(),
    }
}

/// Reads `5.0` as `5`. Beyond 2^53 a double does not determine the whole number.
fn whole_number(number: &Number) -> Option<Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.is_i64() || number.is_u64() {
        return Some(number.clone());
    }
    let double = number.as_f64().filter(|double| double.fract() == 0.0 && double.abs() <= EXACT)?;
    Some(Number::from(double as i64))
}

/// Converts Go's notation (`1m30s`) to proto3 JSON (`90s`).
fn read_duration(json: Json, path: &str) -> Read {
    let Json::String(text) = &json else {
        return error_at(path, "expected a duration such as \"300ms\", \"5s\" or \"1m30s\"");
    };
    let Some(nanos) = parse_duration(text) else {
        let reason =
            format!("{text:?} is not a valid duration; write it like \"300ms\", \"5s\" or \"1m30s\"");
        return error_at(path, reason);
    };
    Ok(envoy_forms::duration(nanos / 1_000_000_000, (nanos % 1_000_000_000) as i32))
}

/// Returns the path of a field of the message at `path`.
pub fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_after_the_last_fault_that_is_asked_for() {
        for (max_errors, read) in [(1, 2), (3, 6), (10, 12)] {
            let mut parts_read = 0;
            // Every second part is faulty.
            let parts = (0..12).map(|index| {
                parts_read += 1;
                if index % 2 == 0 { Ok(index) } else { Err(vec![JsonError::whole("a fault")]) }
            });
            let errors = collect::<_, Vec<_>>(max_errors, parts).map_err(|errors| errors.len());
            assert_eq!((parts_read, errors), (read, Err(max_errors.min(6))));
        }
    }
}
