use prost_reflect::{Cardinality, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value};

use super::{adapt::adapt, modernize::modernize};
use crate::types::Types;
use mixer_adapter_config::envoy::{predecessor, successor};
use mixer_adapter_config::join_texts;
use mixer_adapter_core::proto::Any;

/// The prefix of the packages that have versions.
const ENVOY: &str = "envoy.";
const ANY: &str = "google.protobuf.Any";
/// How deep messages may be nested.
const MAX_DEPTH: usize = 100;
/// The number of values that are listed as lost.
const MAX_LOSSES: usize = 100;

/// The reason why a message cannot be translated to another version of Envoy's API.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TranslateError {
    /// The other version has no such message.
    #[error("{0} does not exist in the other version of Envoy's API")]
    Message(String),
    /// The bytes are not a message of the type.
    #[error("not a valid {0}: {1}")]
    Decode(String, prost::DecodeError),
    /// The other version cannot hold some values.
    #[error("the other version of Envoy's API cannot hold {}", join_texts(.0.iter().map(ToString::to_string)))]
    Losses(Vec<LostValueError>),
}

/// A value that the other version cannot hold.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path} ({reason})")]
pub(crate) struct LostValueError {
    /// `filter_chains[0].filters[1].config`.
    path: String,
    reason: &'static str,
}

const NO_FIELD: &str = "no such field";
const NO_VALUE: &str = "no such value";
const OTHER_TYPE: &str = "a field of another type";
const SEVERAL: &str = "one value only";
const NO_MESSAGE: &str = "no such extension";
const UNKNOWN: &str = "a field that is unknown here";
const TOO_DEEP: &str = "nested too deep";

/// A version of Envoy's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V2,
    V3,
}

/// Translates a message of v3 to v2. A message without versions is unchanged.
pub(crate) fn to_v2(body: &Any) -> Result<Any, TranslateError> {
    translate(body, Version::V2)
}

/// Translates a message of v2 to v3. A message without versions is unchanged.
pub(crate) fn to_v3(body: &Any) -> Result<Any, TranslateError> {
    translate(body, Version::V3)
}

fn translate(body: &Any, to: Version) -> Result<Any, TranslateError> {
    let name = body.message_name();
    let mut translation = Translation { to, losses: Vec::new() };
    if !name.starts_with(ENVOY) {
        return Ok(body.clone());
    }
    let Some((from, into)) = to.pair(name) else { return Err(TranslateError::Message(name.to_owned())) };
    let message = DynamicMessage::decode(from, body.value.clone());
    let message = message.map_err(|error| TranslateError::Decode(name.to_owned(), error))?;
    let type_url = format!("{}{}", &body.type_url[..body.type_url.len() - name.len()], into.full_name());
    let message = translation.message(message, into, &Path::Root);
    if translation.losses.is_empty() {
        Ok(Any { type_url, value: crate::ordered::encode(&message).into() })
    } else {
        Err(TranslateError::Losses(translation.losses))
    }
}

/// Returns the parts of a message of v2 that its successor does not have.
#[cfg(test)]
pub(super) fn losses(message: DynamicMessage, successor: MessageDescriptor) -> Vec<LostValueError> {
    let mut translation = Translation { to: Version::V3, losses: Vec::new() };
    translation.message(message, successor, &Path::Root);
    translation.losses
}

impl Version {
    /// Returns a message and its counterpart in this version.
    fn pair(self, name: &str) -> Option<(MessageDescriptor, MessageDescriptor)> {
        match self {
            Self::V2 => Some((Types::v3(name)?, Types::v2(predecessor(name)?)?)),
            Self::V3 => Some((Types::v2(name)?, Types::v3(successor(name)?)?)),
        }
    }
}

/// The path of a value in the message.
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, String),
}

impl Path<'_> {
    fn text(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Field(Path::Root, name) => (*name).to_owned(),
            Self::Field(parent, name) => format!("{}.{name}", parent.text()),
            Self::Item(parent, key) => format!("{}[{key}]", parent.text()),
        }
    }

    fn depth(&self) -> usize {
        match self {
            Self::Root => 0,
            Self::Field(parent, _) | Self::Item(parent, _) => 1 + parent.depth(),
        }
    }
}

/// A translation of one message. Fields correspond by their numbers, which v3 did not change.
struct Translation {
    to: Version,
    losses: Vec<LostValueError>,
}

impl Translation {
    fn lose(&mut self, path: &Path<'_>, reason: &'static str) {
        if self.losses.len() < MAX_LOSSES {
            self.losses.push(LostValueError { path: path.text(), reason });
        }
    }

    fn message(
        &mut self,
        mut from: DynamicMessage,
        into: MessageDescriptor,
        path: &Path<'_>,
    ) -> DynamicMessage {
        if path.depth() > MAX_DEPTH {
            self.lose(path, TOO_DEEP);
            return DynamicMessage::new(into);
        }
        modernize(&mut from);
        let mut translated = DynamicMessage::new(into.clone());
        for unknown in from.unknown_fields() {
            self.lose(&Path::Field(path, &unknown.number().to_string()), UNKNOWN);
        }
        for (field, value) in from.take_fields() {
            let path = Path::Field(path, field.name());
            let Some(target) = into.get_field(field.number()) else {
                self.lose(&path, NO_FIELD);
                continue;
            };
            if let Some(value) = self.field(&field, &target, value, &path)
                && translated.try_set_field(&target, value).is_err()
            {
                self.lose(&path, OTHER_TYPE);
            }
        }
        adapt(&mut translated);
        translated
    }

    fn field(
        &mut self,
        from: &FieldDescriptor,
        into: &FieldDescriptor,
        value: Value,
        path: &Path<'_>,
    ) -> Option<Value> {
        let (source, target) = (from.kind(), into.kind());
        let is_repeated = into.cardinality() == Cardinality::Repeated;
        match (value, is_repeated) {
            (Value::Map(entries), true) => {
                let (Kind::Message(source), Kind::Message(target)) = (source, target) else {
                    self.lose(path, OTHER_TYPE);
                    return None;
                };
                let (source, target) =
                    (source.map_entry_value_field().kind(), target.map_entry_value_field().kind());
                let mut translated = std::collections::HashMap::new();
                for (key, value) in entries {
                    let path = Path::Item(path, key_text(&key));
                    translated.extend(self.value(&source, &target, value, &path).map(|value| (key, value)));
                }
                Some(Value::Map(translated))
            }
            (Value::List(items), true) => {
                let items = items.into_iter().enumerate().filter_map(|(index, item)| {
                    self.value(&source, &target, item, &Path::Item(path, index.to_string()))
                });
                Some(Value::List(items.collect()))
            }
            // A field that holds one value in v2 and several in v3.
            (Value::List(items), false) => match <[Value; 1]>::try_from(items) {
                Ok([item]) => self.value(&source, &target, item, path),
                Err(_) => {
                    self.lose(path, SEVERAL);
                    None
                }
            },
            (value, true) => self.value(&source, &target, value, path).map(|value| Value::List(vec![value])),
            (value, false) => self.value(&source, &target, value, path),
        }
    }

    fn value(&mut self, from: &Kind, into: &Kind, value: Value, path: &Path<'_>) -> Option<Value> {
        match (value, from, into) {
            (Value::Message(message), Kind::Message(from), Kind::Message(into)) => {
                if from.full_name() == ANY && into.full_name() == ANY {
                    return self.any(&message, into, path).map(Value::Message);
                }
                // A message without versions is the same in another pool.
                let versioned = from.full_name().starts_with(ENVOY) && into.full_name().starts_with(ENVOY);
                if !versioned && from.full_name() != into.full_name() {
                    self.lose(path, OTHER_TYPE);
                    return None;
                }
                Some(Value::Message(self.message(message, into.clone(), path)))
            }
            (Value::EnumNumber(number), Kind::Enum(from), Kind::Enum(into)) => {
                // An alias of a name is another value of the same meaning.
                let known = into.get_value(number).is_some() || from.get_value(number).is_none();
                if !known {
                    self.lose(path, NO_VALUE);
                }
                known.then_some(Value::EnumNumber(number))
            }
            (value, from, into) if from == into => Some(value),
            _ => {
                self.lose(path, OTHER_TYPE);
                None
            }
        }
    }

    /// Translates the content of an Any, and its type URL. Messages of others than Envoy have no versions and are
    /// unchanged.
    fn any(
        &mut self,
        any: &DynamicMessage,
        into: &MessageDescriptor,
        path: &Path<'_>,
    ) -> Option<DynamicMessage> {
        let (type_url, value) = (any.get_field_by_name("type_url")?, any.get_field_by_name("value")?);
        let (type_url, value) = (type_url.as_str()?, value.as_bytes()?);
        let name = type_url.rsplit('/').next()?;
        let make = |type_url: String, value: prost::bytes::Bytes| {
            let mut any = DynamicMessage::new(into.clone());
            any.set_field_by_name("type_url", Value::String(type_url));
            any.set_field_by_name("value", Value::Bytes(value));
            any
        };
        if !name.starts_with(ENVOY) {
            return Some(make(type_url.to_owned(), value.clone()));
        }
        let Some((from, target)) = self.to.pair(name) else {
            self.lose(path, NO_MESSAGE);
            return None;
        };
        let Ok(message) = DynamicMessage::decode(from, value.clone()) else {
            self.lose(path, UNKNOWN);
            return None;
        };
        let type_url = format!("{}{}", &type_url[..type_url.len() - name.len()], target.full_name());
        let message = self.message(message, target, path);
        Some(make(type_url, crate::ordered::encode(&message).into()))
    }
}

fn key_text(key: &prost_reflect::MapKey) -> String {
    match key {
        prost_reflect::MapKey::String(text) => format!("{text:?}"),
        other => format!("{other:?}"),
    }
}
