//! Translation of messages between two major versions of an API, by what their protos have in common.

use std::collections::{BTreeMap, HashMap};

use prost::Message as _;
use prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor,
    ReflectMessage as _, Value,
};
use serde::Serialize;

use crate::{options::History, set::ProtoSet};

/// Translates messages between two versions of a package. It has no state.
///
/// A message corresponds to the message that names it as `previous` (or as Envoy's `previous_message_type`), else to
/// its namesake. A field corresponds to the field that names it as `previous`, else to its namesake, else to a new name
/// with the same number; values of enums likewise.
#[derive(Clone, Debug)]
pub struct Translator {
    pool: DescriptorPool,
    /// Messages of either version to the other.
    messages: HashMap<String, String>,
    /// Fields of either version to the other, by full names.
    fields: HashMap<String, FieldDescriptor>,
    /// Values of enums of either version to the other.
    values: HashMap<(String, i32), i32>,
    rows: Vec<Row>,
}

/// A difference between the versions, or something that has no counterpart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct Row {
    /// The element of the older version; empty if missing.
    pub from: String,
    /// The element of the newer version; empty if missing.
    pub to: String,
    /// Its translation.
    pub note: &'static str,
}

/// A translated message.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Translation {
    /// The message in the other version.
    pub message: DynamicMessage,
    /// The paths of values that the other version cannot hold, with the reason.
    pub losses: Vec<Loss>,
}

/// A value that the other version cannot hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Loss {
    /// The path of the value, `lines[0].amount`.
    pub path: String,
    /// Why it cannot be translated.
    pub reason: &'static str,
}

/// A translation that is not possible at all.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TranslateError {
    /// A package has no messages here.
    #[error("no message of the package {0} is among the protos")]
    UnknownPackage(String),
    /// A message has no counterpart.
    #[error("{0} has no counterpart in the other version")]
    NoCounterpart(String),
}

const NO_FIELD: &str = "the other version has no such field";
const OTHER_TYPE: &str = "the field has another type in the other version";
const NO_VALUE: &str = "the other version has no such value";
const UNKNOWN: &str = "a field that is unknown here";

impl Translator {
    /// Derives the translation between two packages of a set, `older` and `newer`.
    ///
    /// # Errors
    /// A package has no messages.
    pub fn between(set: &ProtoSet, older: &str, newer: &str) -> Result<Self, TranslateError> {
        let pool = set.pool().clone();
        for package in [older, newer] {
            if !pool.all_messages().any(|message| message.package_name() == package) {
                return Err(TranslateError::UnknownPackage(package.to_owned()));
            }
        }
        let mut builder = Builder {
            translator: Self {
                pool: pool.clone(),
                messages: HashMap::new(),
                fields: HashMap::new(),
                values: HashMap::new(),
                rows: Vec::new(),
            },
            enums: HashMap::new(),
        };
        let old =
            pool.all_messages().filter(|message| message.package_name() == older && !message.is_map_entry());
        let old: BTreeMap<String, MessageDescriptor> =
            old.map(|message| (message.full_name().to_owned(), message)).collect();
        let new =
            pool.all_messages().filter(|message| message.package_name() == newer && !message.is_map_entry());
        let mut pairs = Vec::new();
        for new in new {
            let stated = History::of(&new.options()).previous;
            let name = stated.unwrap_or_else(|| format!("{older}{}", &new.full_name()[newer.len()..]));
            match pool.get_message_by_name(&name) {
                Some(old) => pairs.push((old, new)),
                None => builder.row("", new.full_name(), "new"),
            }
        }
        for (old, new) in &pairs {
            builder.pair(old, new);
        }
        for name in old.keys() {
            if !builder.translator.messages.contains_key(name) {
                builder.row(name, "", NO_COUNTERPART);
            }
        }
        let mut next = pairs;
        while let Some((old, new)) = next.pop() {
            next.extend(builder.fields(&old, &new));
        }
        builder.translator.rows.sort();
        Ok(builder.translator)
    }

    /// Returns what differs between the versions: renames, moves, and what cannot be translated.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the counterpart of a message, by its full name.
    pub fn counterpart(&self, message: &str) -> Option<MessageDescriptor> {
        self.pool.get_message_by_name(self.messages.get(message)?)
    }

    /// Translates a message of either version to the other.
    ///
    /// # Errors
    /// The message has no counterpart. A value without one is a loss of the translation.
    pub fn translate(&self, message: &DynamicMessage) -> Result<Translation, TranslateError> {
        let name = message.descriptor().full_name().to_owned();
        let counterpart = self.counterpart(&name).ok_or(TranslateError::NoCounterpart(name))?;
        let mut losses = Vec::new();
        let message = self.message(message, counterpart, "", &mut losses);
        Ok(Translation { message, losses })
    }

    fn message(
        &self,
        message: &DynamicMessage,
        to: MessageDescriptor,
        path: &str,
        losses: &mut Vec<Loss>,
    ) -> DynamicMessage {
        let mut translated = DynamicMessage::new(to);
        for (field, value) in message.fields() {
            let path = join(path, field.name());
            match self.fields.get(field.full_name()) {
                Some(target) => {
                    let value = self.value(&field.kind(), &target.kind(), value, &path, losses);
                    if let Some(value) = value {
                        translated.set_field(target, value);
                    }
                }
                None => losses.push(Loss { path, reason: NO_FIELD }),
            }
        }
        for unknown in message.unknown_fields() {
            losses.push(Loss { path: join(path, &unknown.number().to_string()), reason: UNKNOWN });
        }
        translated
    }

    fn value(
        &self,
        from: &Kind,
        to: &Kind,
        value: &Value,
        path: &str,
        losses: &mut Vec<Loss>,
    ) -> Option<Value> {
        match (value, from, to) {
            (Value::List(items), ..) => {
                let items = items.iter().enumerate();
                let items = items.filter_map(|(index, item)| {
                    self.value(from, to, item, &format!("{path}[{index}]"), losses)
                });
                Some(Value::List(items.collect()))
            }
            (Value::Map(entries), Kind::Message(from), Kind::Message(to)) => {
                let (from, to) = (from.map_entry_value_field().kind(), to.map_entry_value_field().kind());
                let mut translated = HashMap::new();
                for (key, value) in entries {
                    let value = self.value(&from, &to, value, &format!("{path}[{key:?}]"), losses);
                    translated.extend(value.map(|value| (key.clone(), value)));
                }
                Some(Value::Map(translated))
            }
            (Value::Message(message), Kind::Message(_), Kind::Message(to)) => {
                Some(Value::Message(self.inner(message, to, path, losses)))
            }
            (Value::EnumNumber(number), Kind::Enum(from), Kind::Enum(to)) if from != to => {
                let translated = self.values.get(&(from.full_name().to_owned(), *number));
                // A number that no version names.
                let translated = translated.or(from.get_value(*number).is_none().then_some(number));
                if translated.is_none() {
                    losses.push(Loss { path: path.to_owned(), reason: NO_VALUE });
                }
                translated.map(|number| Value::EnumNumber(*number))
            }
            (value, ..) => Some(value.clone()),
        }
    }

    fn inner(
        &self,
        message: &DynamicMessage,
        to: &MessageDescriptor,
        path: &str,
        losses: &mut Vec<Loss>,
    ) -> DynamicMessage {
        let from = message.descriptor();
        if from.full_name() == "google.protobuf.Any" {
            return self.any(message, path, losses).unwrap_or_else(|| message.clone());
        }
        if from == *to && !self.messages.contains_key(from.full_name()) {
            return message.clone();
        }
        self.message(message, to.clone(), path, losses)
    }

    /// Translates the content of an Any, if it is a message of either version.
    fn any(&self, any: &DynamicMessage, path: &str, losses: &mut Vec<Loss>) -> Option<DynamicMessage> {
        let url = any.get_field_by_name("type_url")?.as_str()?.to_owned();
        let (prefix, name) = url.rsplit_once('/')?;
        let to = self.counterpart(name)?;
        let value = any.get_field_by_name("value")?.as_bytes()?.clone();
        let inner = DynamicMessage::decode(self.pool.get_message_by_name(name)?, value).ok()?;
        let url = format!("{prefix}/{}", to.full_name());
        let translated = self.message(&inner, to, path, losses);
        let mut any = any.clone();
        any.set_field_by_name("type_url", Value::String(url));
        any.set_field_by_name("value", Value::Bytes(translated.encode_to_vec().into()));
        Some(any)
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

const NO_COUNTERPART: &str = "cannot be translated: no counterpart";

/// Finds what corresponds.
struct Builder {
    translator: Translator,
    enums: HashMap<String, String>,
}

impl Builder {
    fn row(&mut self, from: &str, to: &str, note: &'static str) {
        self.translator.rows.push(Row { from: from.to_owned(), to: to.to_owned(), note });
    }

    /// Lets two messages correspond to each other; returns whether they did not before.
    fn pair(&mut self, old: &MessageDescriptor, new: &MessageDescriptor) -> bool {
        let messages = &mut self.translator.messages;
        if messages.contains_key(old.full_name()) || messages.contains_key(new.full_name()) {
            return false;
        }
        messages.insert(old.full_name().to_owned(), new.full_name().to_owned());
        messages.insert(new.full_name().to_owned(), old.full_name().to_owned());
        let place =
            |message: &MessageDescriptor| message.full_name()[message.package_name().len()..].to_owned();
        if place(old) != place(new) {
            self.row(old.full_name(), new.full_name(), "moved");
        }
        true
    }

    /// Finds the fields of two messages that correspond; returns further messages that do by their fields.
    fn fields(
        &mut self,
        old: &MessageDescriptor,
        new: &MessageDescriptor,
    ) -> Vec<(MessageDescriptor, MessageDescriptor)> {
        let mut further = Vec::new();
        for field in new.fields() {
            let stated = History::of(&field.options()).previous;
            let by_name = old.get_field_by_name(stated.as_deref().unwrap_or(field.name()));
            // A new name for the number, unless that name still exists.
            let by_number =
                old.get_field(field.number()).filter(|other| new.get_field_by_name(other.name()).is_none());
            let Some(other) = by_name.or(by_number) else {
                self.row("", field.full_name(), "new");
                continue;
            };
            if self.translator.fields.contains_key(other.full_name()) {
                self.row("", field.full_name(), "new");
                continue;
            }
            if self.same_type(&other, &field, &mut further) {
                if other.name() != field.name() {
                    self.row(other.full_name(), field.full_name(), "renamed");
                } else if other.number() != field.number() {
                    self.row(other.full_name(), field.full_name(), "renumbered");
                }
                self.translator.fields.insert(other.full_name().to_owned(), field.clone());
                self.translator.fields.insert(field.full_name().to_owned(), other);
            } else {
                self.row(other.full_name(), field.full_name(), OTHER_TYPE)
            }
        }
        for field in old.fields() {
            let named = self.translator.rows.iter().any(|row| row.from == field.full_name());
            if !self.translator.fields.contains_key(field.full_name()) && !named {
                self.row(field.full_name(), "", NO_COUNTERPART);
            }
        }
        further
    }

    fn same_type(
        &mut self,
        old: &FieldDescriptor,
        new: &FieldDescriptor,
        further: &mut Vec<(MessageDescriptor, MessageDescriptor)>,
    ) -> bool {
        let [was_repeated, is_repeated] =
            [old, new].map(|field| field.cardinality() == Cardinality::Repeated);
        was_repeated == is_repeated && self.same_kind(&old.kind(), &new.kind(), further)
    }

    fn same_kind(
        &mut self,
        old: &Kind,
        new: &Kind,
        further: &mut Vec<(MessageDescriptor, MessageDescriptor)>,
    ) -> bool {
        match (old, new) {
            (Kind::Message(old), Kind::Message(new)) if old.is_map_entry() && new.is_map_entry() => {
                old.map_entry_key_field().kind() == new.map_entry_key_field().kind()
                    && self.same_kind(
                        &old.map_entry_value_field().kind(),
                        &new.map_entry_value_field().kind(),
                        further,
                    )
            }
            (Kind::Message(old), Kind::Message(new)) => {
                let known = self.translator.messages.get(old.full_name());
                if old == new || known.is_some_and(|known| known == new.full_name()) {
                    return true;
                }
                // It is of another package, which has its own versions.
                let pair = old.name() == new.name() && self.pair(old, new);
                if pair {
                    further.push((old.clone(), new.clone()));
                }
                pair
            }
            (Kind::Enum(old), Kind::Enum(new)) => self.enums_correspond(old, new),
            (old, new) => old == new,
        }
    }

    fn enums_correspond(&mut self, old: &EnumDescriptor, new: &EnumDescriptor) -> bool {
        if old == new {
            return true;
        }
        match self.enums.get(old.full_name()) {
            Some(known) => known == new.full_name(),
            None => {
                self.enums.insert(old.full_name().to_owned(), new.full_name().to_owned());
                self.values(old, new);
                true
            }
        }
    }

    fn values(&mut self, old: &EnumDescriptor, new: &EnumDescriptor) {
        fn name(of: &EnumDescriptor, value: &str) -> String {
            format!("{}.{value}", of.full_name())
        }
        for value in new.values() {
            let stated = History::of(&value.options()).previous;
            let by_name = old.get_value_by_name(stated.as_deref().unwrap_or(value.name()));
            let by_number =
                old.get_value(value.number()).filter(|other| new.get_value_by_name(other.name()).is_none());
            let Some(other) = by_name.or(by_number) else {
                self.row("", &name(new, value.name()), "new");
                continue;
            };
            if other.name() != value.name() {
                self.row(&name(old, other.name()), &name(new, value.name()), "renamed");
            } else if other.number() != value.number() {
                self.row(&name(old, other.name()), &name(new, value.name()), "renumbered");
            }
            let values = &mut self.translator.values;
            values.insert((old.full_name().to_owned(), other.number()), value.number());
            values.insert((new.full_name().to_owned(), value.number()), other.number());
        }
        for value in old.values() {
            if !self.translator.values.contains_key(&(old.full_name().to_owned(), value.number())) {
                self.row(&name(old, value.name()), "", NO_COUNTERPART);
            }
        }
    }
}
