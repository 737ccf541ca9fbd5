//! Instances of any template with ordinary and unusual values, as clients may send them.

use prost_reflect::{Cardinality, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value};
use serde_json::Value as Json;

use super::common::read_yaml;

/// The field with the instance's name (docs/behaviour/templates.md#the-field-name).
const NAME: u32 = 72_295_727;

/// The depth to which nested messages are filled.
const DEPTH: usize = 4;

/// The values of an instance.
#[derive(Clone, Copy)]
struct Filling<'a> {
    /// The kind of its `Value`, below [`CHOICES`]; the last one is no value.
    choice: usize,
    /// The choice of its scalars, below [`CONTENTS`]; the first one is ordinary.
    content: usize,
    /// A word of the configuration, for strings.
    word: Option<&'a str>,
}

/// The eleven kinds of `Value`, and no value.
const CHOICES: usize = 12;
const CONTENTS: usize = 6;

/// The maximum number of words of the configuration.
const WORDS: usize = 16;

/// Every kind of value with every choice of scalars, and every word of a configuration in YAML: an adapter may treat what it names
/// differently.
pub(crate) fn all(descriptor: &MessageDescriptor, name: &str, config: &str) -> Vec<DynamicMessage> {
    let mut words = Vec::new();
    if let Ok(config) = read_yaml(config) {
        collect_words(config, &mut words);
    }
    let words = words.iter().map(|word| Filling { choice: 0, content: 0, word: Some(word) });
    let fillings = (0..CONTENTS)
        .flat_map(|content| (0..CHOICES).map(move |choice| Filling { choice, content, word: None }));
    fillings.chain(words).map(|filling| named(message(descriptor, filling, DEPTH), name)).collect()
}

fn collect_words(config: Json, words: &mut Vec<String>) {
    match config {
        Json::String(word) if words.len() < WORDS && !words.contains(&word) => words.push(word),
        Json::Array(items) => items.into_iter().for_each(|item| collect_words(item, words)),
        Json::Object(fields) => fields.into_iter().for_each(|(_, value)| collect_words(value, words)),
        _ => {}
    }
}

/// An instance with only a name.
pub(crate) fn empty(instance: &MessageDescriptor, name: &str) -> DynamicMessage {
    named(DynamicMessage::new(instance.clone()), name)
}

/// Sets the name of an instance.
pub(crate) fn named(mut instance: DynamicMessage, name: &str) -> DynamicMessage {
    let _has_no_name = instance.try_set_field_by_number(NAME, Value::String(name.to_owned()));
    instance
}

fn message(descriptor: &MessageDescriptor, filling: Filling<'_>, depth: usize) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    if depth == 0 {
        return message;
    }
    for field in descriptor.fields() {
        let is_chosen = field.containing_oneof().is_none_or(|oneof| {
            let chosen = filling.choice % (oneof.fields().count() + 1);
            oneof.fields().nth(chosen).as_ref() == Some(&field)
        });
        if is_chosen {
            message.set_field(&field, several(&field, filling, depth));
        }
    }
    message
}

fn several(field: &FieldDescriptor, filling: Filling<'_>, depth: usize) -> Value {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            let key = filling.pick(["key", "", "a.b/c"]).to_owned();
            Value::Map([(MapKey::String(key), one(&entry.map_entry_value_field(), filling, depth))].into())
        }
        _ if field.cardinality() == Cardinality::Repeated => Value::List(vec![one(field, filling, depth)]),
        _ => one(field, filling, depth),
    }
}

fn one(field: &FieldDescriptor, filling: Filling<'_>, depth: usize) -> Value {
    match field.kind() {
        Kind::String => {
            let ordinary = filling.word.unwrap_or_else(|| ordinary_text(field.parent_message().name()));
            let texts = [ordinary, "", "\0\r\n\"{}%s", "ünïcödé ☃", "10.1.2.3", "https://example.com/a?b#c"];
            Value::String(filling.pick(texts).to_owned())
        }
        Kind::Bytes => {
            let bytes: [&[u8]; 4] = [&[10, 1, 2, 3], &[0; 16], &[1, 2, 3], &[]];
            Value::Bytes(filling.pick(bytes).to_vec().into())
        }
        Kind::Double => {
            Value::F64(filling.pick([1.5, -0.0, f64::NAN, f64::INFINITY, f64::MIN, f64::MIN_POSITIVE]))
        }
        Kind::Bool => Value::Bool(filling.pick([true, false])),
        Kind::Int64 => Value::I64(filling.pick([1, 0, -1, i64::MAX, i64::MIN])),
        Kind::Int32 => Value::I32(filling.pick([1, 0, -1, i32::MAX, i32::MIN])),
        Kind::Message(descriptor) => Value::Message(message(&descriptor, filling, depth - 1)),
        // Templates have no other kinds (docs/behaviour/code-generator.md#allowed-field-types).
        other => Value::default_value(&other),
    }
}

/// Returns an ordinary text for a field of a message.
fn ordinary_text(message: &str) -> &'static str {
    match message {
        "DNSName" => "www.example.com",
        "EmailAddress" => "user@example.com",
        "Uri" => "https://example.com/a",
        _ => "text",
    }
}

impl Filling<'_> {
    fn pick<T: Copy, const N: usize>(self, choices: [T; N]) -> T {
        choices[self.content % N]
    }
}

/// An instance as text: its fields with their names.
pub(crate) fn shown(instance: &DynamicMessage) -> String {
    let fields: Vec<String> =
        instance.fields().map(|(field, value)| format!("{}: {}", field.name(), shown_value(value))).collect();
    format!("{{{}}}", fields.join(", "))
}

fn shown_value(value: &Value) -> String {
    match value {
        Value::Message(message) => shown(message),
        Value::List(list) => format!("[{}]", list.iter().map(shown_value).collect::<Vec<_>>().join(", ")),
        Value::Map(map) => {
            let entries = map.iter().map(|(key, value)| format!("{key:?}: {}", shown_value(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
        scalar => format!("{scalar:?}"),
    }
}
