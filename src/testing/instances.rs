//! Instances of any template with ordinary and unusual values, as clients may send them.

use prost_reflect::{
    Cardinality, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, OneofDescriptor, Value,
};

/// The field with the instance's name (docs/behaviour/templates.md#the-field-name).
const NAME: u32 = 72_295_727;

/// The depth to which nested messages are filled.
const DEPTH: usize = 4;

/// The values of an instance.
#[derive(Clone, Copy)]
pub(super) struct Filling {
    /// The kind of its `Value`, below [`CHOICES`]; the last one is no value.
    choice: usize,
    /// The choice of its scalars, below [`CONTENTS`]; the first one is ordinary.
    content: usize,
}

/// The eleven kinds of `Value`, and no value.
const CHOICES: usize = 12;
const CONTENTS: usize = 6;

/// Every kind of value with every choice of scalars.
pub(super) fn fillings() -> impl Iterator<Item = Filling> {
    (0..CONTENTS).flat_map(|content| (0..CHOICES).map(move |choice| Filling { choice, content }))
}

/// An instance with only a name.
pub(super) fn empty(instance: &MessageDescriptor, name: &str) -> DynamicMessage {
    named(DynamicMessage::new(instance.clone()), name)
}

/// An instance in which every field is set.
pub(super) fn filled(instance: &MessageDescriptor, name: &str, filling: Filling) -> DynamicMessage {
    named(message(instance, filling, DEPTH), name)
}

fn named(mut instance: DynamicMessage, name: &str) -> DynamicMessage {
    let _has_no_name = instance.try_set_field_by_number(NAME, Value::String(name.to_owned()));
    instance
}

fn message(descriptor: &MessageDescriptor, filling: Filling, depth: usize) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    if depth == 0 {
        return message;
    }
    let chosen = |oneof: OneofDescriptor| oneof.fields().nth(filling.choice % (oneof.fields().count() + 1));
    for field in descriptor.fields() {
        if field.containing_oneof().is_none_or(|oneof| chosen(oneof).as_ref() == Some(&field)) {
            message.set_field(&field, several(&field, filling, depth));
        }
    }
    message
}

fn several(field: &FieldDescriptor, filling: Filling, depth: usize) -> Value {
    match field.kind() {
        Kind::Message(entry) if field.is_map() => {
            let key = filling.pick(["key", "", "a.b/c"]).to_owned();
            Value::Map([(MapKey::String(key), one(&entry.map_entry_value_field(), filling, depth))].into())
        }
        _ if field.cardinality() == Cardinality::Repeated => Value::List(vec![one(field, filling, depth)]),
        _ => one(field, filling, depth),
    }
}

fn one(field: &FieldDescriptor, filling: Filling, depth: usize) -> Value {
    match field.kind() {
        Kind::String => Value::String(
            filling
                .pick(["text", "", "\0\r\n\"{}%s", "ünïcödé ☃", "10.1.2.3", "https://example.com/a?b#c"])
                .to_owned(),
        ),
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

impl Filling {
    fn pick<T: Copy, const N: usize>(self, choices: [T; N]) -> T {
        choices[self.content % N]
    }
}

/// An instance as text: its fields with their names.
pub(super) fn shown(instance: &DynamicMessage) -> String {
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
