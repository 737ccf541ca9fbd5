//! Translation of messages between two versions of an API, by what their descriptors have in common.

use std::{collections::HashMap, fmt};

use prost::Message as _;
use prost_reflect::{
    Cardinality, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value,
};

use super::log_text::log_text;

/// How deep messages may be nested.
const MAX_DEPTH: usize = 100;
/// The number of values that are listed as lost.
const MAX_LOSSES: usize = 100;

const ANY: &str = "google.protobuf.Any";

/// The correspondence of two versions of an API, in one direction.
pub trait Correspondence {
    /// Returns the message of that name, and its counterpart in the other version.
    fn counterpart(&self, message: &str) -> Option<(MessageDescriptor, MessageDescriptor)>;

    /// Returns whether the message of that name belongs to the API: without a counterpart it is lost.
    fn is_versioned(&self, message: &str) -> bool;

    /// Returns the counterpart of a field in `into`, the counterpart of its message.
    fn field(&self, field: &FieldDescriptor, into: &MessageDescriptor) -> Option<FieldDescriptor>;

    /// Returns the counterpart of a value of an enum.
    fn value(&self, from: &EnumDescriptor, into: &EnumDescriptor, number: i32) -> Option<i32>;

    /// Rewrites a message before its translation.
    fn prepare(&self, _message: &mut DynamicMessage) {}

    /// Rewrites a translated message.
    fn complete(&self, _message: &mut DynamicMessage) {}

    /// Encodes a translated message within an `Any`.
    fn encode(&self, message: &DynamicMessage) -> Vec<u8> {
        message.encode_to_vec()
    }
}

/// A value that the other version cannot hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The first KiB of the path of the value, `lines[0].amount`.
    pub path: String,
    /// Why it cannot be translated.
    pub reason: &'static str,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path, self.reason)
    }
}

/// Translates a message to its counterpart, and returns the lost values: the first of very many.
pub fn translate(
    correspondence: &impl Correspondence,
    message: DynamicMessage,
    into: MessageDescriptor,
) -> (DynamicMessage, Vec<Loss>) {
    let mut translation = Translation { of: correspondence, losses: Vec::new() };
    let message = translation.message(message, into, &Path::Root);
    (message, translation.losses)
}

/// The path of a value in the message.
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Item(&'a Path<'a>, &'a dyn fmt::Display),
}

impl Path<'_> {
    fn depth(&self) -> usize {
        match self {
            Self::Root => 0,
            Self::Field(parent, _) | Self::Item(parent, _) => 1 + parent.depth(),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Path::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Item(parent, key) => write!(f, "{parent}[{key}]"),
        }
    }
}

struct Translation<'a, C> {
    of: &'a C,
    losses: Vec<Loss>,
}

impl<C: Correspondence> Translation<'_, C> {
    /// Records a lost value.
    fn lose<T>(&mut self, path: &Path<'_>, reason: &'static str) -> Option<T> {
        if self.losses.len() < MAX_LOSSES {
            self.losses.push(Loss { path: log_text(path), reason });
        }
        None
    }

    fn message(
        &mut self,
        mut from: DynamicMessage,
        into: MessageDescriptor,
        path: &Path<'_>,
    ) -> DynamicMessage {
        let mut translated = DynamicMessage::new(into.clone());
        if path.depth() > MAX_DEPTH {
            self.lose::<()>(path, "nested too deep");
            return translated;
        }
        self.of.prepare(&mut from);
        for unknown in from.unknown_fields() {
            self.lose::<()>(
                &Path::Field(path, &unknown.number().to_string()),
                "a field that is unknown here",
            );
        }
        for (field, value) in from.take_fields() {
            let path = Path::Field(path, field.name());
            let Some(target) = self.of.field(&field, &into) else {
                self.lose::<()>(&path, "no such field");
                continue;
            };
            if let Some(value) = self.field(&field, &target, value, &path)
                && translated.try_set_field(&target, value).is_err()
            {
                self.lose::<()>(&path, OTHER_TYPE);
            }
        }
        self.of.complete(&mut translated);
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
                    return self.lose(path, OTHER_TYPE);
                };
                let (source, target) =
                    (source.map_entry_value_field().kind(), target.map_entry_value_field().kind());
                let mut translated = HashMap::new();
                for (key, value) in entries {
                    let value = self.value(&source, &target, value, &Path::Item(path, &KeyText(&key)));
                    translated.extend(value.map(|value| (key, value)));
                }
                Some(Value::Map(translated))
            }
            (Value::List(items), true) => {
                let items = items.into_iter().enumerate().filter_map(|(index, item)| {
                    self.value(&source, &target, item, &Path::Item(path, &index))
                });
                Some(Value::List(items.collect()))
            }
            // A field that holds one value in one version and several in the other.
            (Value::List(items), false) => match <[Value; 1]>::try_from(items) {
                Ok([item]) => self.value(&source, &target, item, path),
                Err(_) => self.lose(path, "one value only"),
            },
            (value, true) => self.value(&source, &target, value, path).map(|value| Value::List(vec![value])),
            (value, false) => self.value(&source, &target, value, path),
        }
    }

    fn value(&mut self, from: &Kind, into: &Kind, value: Value, path: &Path<'_>) -> Option<Value> {
        match (value, from, into) {
            (Value::Message(message), Kind::Message(from), Kind::Message(into)) => {
                let versioned = [from, into].map(|message| self.of.is_versioned(message.full_name()));
                if from.full_name() == ANY && into.full_name() == ANY {
                    self.any(&message, into, path).map(Value::Message)
                } else if versioned != [true; 2] && from.full_name() != into.full_name() {
                    self.lose(path, OTHER_TYPE)
                } else if versioned == [false; 2] && from == into {
                    Some(Value::Message(message))
                } else {
                    // A message without versions is the same in another pool.
                    Some(Value::Message(self.message(message, into.clone(), path)))
                }
            }
            (Value::EnumNumber(number), Kind::Enum(from), Kind::Enum(into)) => {
                // A number without a name means the same in both versions.
                let unnamed = from.get_value(number).is_none().then_some(number);
                match self.of.value(from, into, number).or(unnamed) {
                    Some(number) => Some(Value::EnumNumber(number)),
                    None => self.lose(path, "no such value"),
                }
            }
            (value, from, into) if from == into => Some(value),
            _ => self.lose(path, OTHER_TYPE),
        }
    }

    /// Translates the content of an Any, and its type URL. Messages that are not of the API are unchanged.
    fn any(
        &mut self,
        any: &DynamicMessage,
        into: &MessageDescriptor,
        path: &Path<'_>,
    ) -> Option<DynamicMessage> {
        let (url, value) = (any.get_field_by_name("type_url")?, any.get_field_by_name("value")?);
        let (mut url, mut value) = (url.as_str()?.to_owned(), value.as_bytes()?.clone());
        let name = url.rsplit('/').next().unwrap_or_default();
        if self.of.is_versioned(name) {
            let Some((from, target)) = self.of.counterpart(name) else {
                return self.lose(path, "no such extension");
            };
            let Ok(message) = DynamicMessage::decode(from, value) else {
                return self.lose(path, "content that cannot be decoded");
            };
            url = format!("{}{}", &url[..url.len() - name.len()], target.full_name());
            let message = self.message(message, target, path);
            value = self.of.encode(&message).into();
        }
        let mut any = DynamicMessage::new(into.clone());
        any.set_field_by_name("type_url", Value::String(url));
        any.set_field_by_name("value", Value::Bytes(value));
        Some(any)
    }
}

const OTHER_TYPE: &str = "a field of another type";

/// A key of a map in a path.
struct KeyText<'a>(&'a MapKey);

impl fmt::Display for KeyText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            MapKey::String(text) => write!(f, "{text:?}"),
            other => write!(f, "{other:?}"),
        }
    }
}
