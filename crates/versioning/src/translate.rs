//! Translation of messages between two major versions of an API, by what their protos have in common.

use std::collections::HashMap;

use prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor,
    ReflectMessage as _,
};
use serde::Serialize;

use crate::{options::History, set::ProtoSet};
use mixer_adapter_core::framework::translation::{self, Correspondence};

pub use mixer_adapter_core::framework::translation::Loss;

/// Translates messages between two versions of a package. It has no state.
///
/// A message corresponds to the message that names it as `previous` (or as Envoy's `previous_message_type`), else to
/// its namesake. A field corresponds to the field that names it as `previous`, else to its namesake, else to a new name
/// with the same number; values of enums likewise.
#[derive(Clone, Debug, Default)]
pub struct Translator {
    pool: DescriptorPool,
    /// Messages of either version to the other.
    messages: HashMap<String, String>,
    /// Fields of either version to the other, by full names.
    fields: HashMap<String, FieldDescriptor>,
    /// Enums of the older version to the newer one.
    enums: HashMap<String, String>,
    /// Values of enums of either version to the other.
    values: HashMap<(String, i32), i32>,
    rows: Vec<Row>,
}

/// Messages of the older and the newer version.
type Pairs = Vec<(MessageDescriptor, MessageDescriptor)>;

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
        let mut translator = Self { pool: pool.clone(), ..Self::default() };
        let messages: Vec<_> = pool.all_messages().filter(|message| !message.is_map_entry()).collect();
        let mut pairs = Pairs::new();
        for new in messages.iter().filter(|message| message.package_name() == newer) {
            let stated = History::of(&new.options()).previous;
            let name = stated.unwrap_or_else(|| format!("{older}{}", &new.full_name()[newer.len()..]));
            match pool.get_message_by_name(&name) {
                Some(old) => pairs.push((old, new.clone())),
                None => translator.row("", new.full_name(), "new"),
            }
        }
        for (old, new) in &pairs {
            translator.pair(old, new);
        }
        for old in messages.iter().filter(|message| message.package_name() == older) {
            if !translator.messages.contains_key(old.full_name()) {
                translator.row(old.full_name(), "", NO_COUNTERPART);
            }
        }
        let mut next = pairs;
        while let Some((old, new)) = next.pop() {
            next.extend(translator.add_fields(&old, &new));
        }
        translator.rows.sort();
        Ok(translator)
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
        let (message, losses) = translation::translate(self, message.clone(), counterpart);
        Ok(Translation { message, losses })
    }
}

impl Correspondence for Translator {
    fn counterpart(&self, message: &str) -> Option<(MessageDescriptor, MessageDescriptor)> {
        Some((self.pool.get_message_by_name(message)?, Self::counterpart(self, message)?))
    }

    fn is_versioned(&self, message: &str) -> bool {
        self.messages.contains_key(message)
    }

    fn field(&self, field: &FieldDescriptor, _: &MessageDescriptor) -> Option<FieldDescriptor> {
        self.fields.get(field.full_name()).cloned()
    }

    fn value(&self, from: &EnumDescriptor, into: &EnumDescriptor, number: i32) -> Option<i32> {
        let other = self.values.get(&(from.full_name().to_owned(), number)).copied();
        if from == into { Some(number) } else { other }
    }
}

const NO_COUNTERPART: &str = "cannot be translated: no counterpart";
const OTHER_TYPE: &str = "the field has another type in the other version";

impl Translator {
    fn row(&mut self, from: &str, to: &str, note: &'static str) {
        self.rows.push(Row { from: from.to_owned(), to: to.to_owned(), note });
    }

    /// Lets two messages correspond to each other; returns whether they did not before.
    fn pair(&mut self, old: &MessageDescriptor, new: &MessageDescriptor) -> bool {
        let messages = &mut self.messages;
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
    fn add_fields(&mut self, old: &MessageDescriptor, new: &MessageDescriptor) -> Pairs {
        let mut further = Pairs::new();
        for field in new.fields() {
            let stated = History::of(&field.options()).previous;
            let by_name = old.get_field_by_name(stated.as_deref().unwrap_or(field.name()));
            // A new name for the number, unless that name still exists.
            let by_number =
                old.get_field(field.number()).filter(|other| new.get_field_by_name(other.name()).is_none());
            let other = by_name.or(by_number).filter(|other| !self.fields.contains_key(other.full_name()));
            let Some(other) = other else {
                self.row("", field.full_name(), "new");
                continue;
            };
            let [was_repeated, is_repeated] =
                [&other, &field].map(|field| field.cardinality() == Cardinality::Repeated);
            if was_repeated == is_repeated && self.same_kind(&other.kind(), &field.kind(), &mut further) {
                if other.name() != field.name() {
                    self.row(other.full_name(), field.full_name(), "renamed");
                } else if other.number() != field.number() {
                    self.row(other.full_name(), field.full_name(), "renumbered");
                }
                self.fields.insert(other.full_name().to_owned(), field.clone());
                self.fields.insert(field.full_name().to_owned(), other);
            } else {
                self.row(other.full_name(), field.full_name(), OTHER_TYPE)
            }
        }
        for field in old.fields() {
            let named = self.rows.iter().any(|row| row.from == field.full_name());
            if !self.fields.contains_key(field.full_name()) && !named {
                self.row(field.full_name(), "", NO_COUNTERPART);
            }
        }
        further
    }

    fn same_kind(&mut self, old: &Kind, new: &Kind, further: &mut Pairs) -> bool {
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
                let known = self.messages.get(old.full_name());
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
                self.add_values(old, new);
                true
            }
        }
    }

    fn add_values(&mut self, old: &EnumDescriptor, new: &EnumDescriptor) {
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
            let values = &mut self.values;
            values.insert((old.full_name().to_owned(), other.number()), value.number());
            values.insert((new.full_name().to_owned(), value.number()), other.number());
        }
        for value in old.values() {
            if !self.values.contains_key(&(old.full_name().to_owned(), value.number())) {
                self.row(&name(old, value.name()), "", NO_COUNTERPART);
            }
        }
    }
}
