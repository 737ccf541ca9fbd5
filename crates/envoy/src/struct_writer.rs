//! Writes the encoding of `google.protobuf.Struct`, without the tree of its values: every answer to Envoy has one.

use prost::{
    Message as _,
    encoding::{WireType, encode_key, encode_varint, encoded_len_varint},
};
use prost_types::{Value, value::Kind};

/// The encoding of a struct so far.
#[derive(Debug)]
pub(crate) struct StructWriter(Vec<u8>);

/// The initial capacity, which the metadata of most decisions fits into: a buffer that grows field by field is copied at each step.
const CAPACITY: usize = 256;

/// Fields of `Struct` and `ListValue`, of an entry of a map, and of `Value`.
const ELEMENT: u32 = 1;
const KEY: u32 = 1;
const VALUE: u32 = 2;
const STRING: u32 = 3;
const STRUCT: u32 = 5;
const LIST: u32 = 6;

impl StructWriter {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(CAPACITY))
    }

    /// Continues an encoded struct.
    pub(crate) fn after(encoded: &[u8]) -> Self {
        let mut writer = Self::new();
        writer.0.extend_from_slice(encoded);
        writer
    }

    /// Returns the encoded message.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    /// Writes encoded entries.
    pub(crate) fn encoded(&mut self, entries: &[u8]) {
        self.0.extend_from_slice(entries);
    }

    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.value(name, STRING, text.as_bytes());
    }

    pub(crate) fn number(&mut self, name: &str, number: f64) {
        let number = Value { kind: Some(Kind::NumberValue(number)) };
        self.entry(name, number.encoded_len());
        number.encode_raw(&mut self.0);
    }

    pub(crate) fn texts<'t>(&mut self, name: &str, texts: impl Iterator<Item = &'t str>) {
        let mut list = Vec::with_capacity(CAPACITY);
        for text in texts {
            head(ELEMENT, field_len(text.len()), &mut list);
            field(STRING, text.as_bytes(), &mut list);
        }
        self.value(name, LIST, &list);
    }

    pub(crate) fn nested(&mut self, name: &str, write: impl FnOnce(&mut Self)) {
        let mut nested = Self::new();
        write(&mut nested);
        self.value(name, STRUCT, &nested.0);
    }

    /// Writes an entry whose value has one field.
    fn value(&mut self, name: &str, number: u32, content: &[u8]) {
        self.entry(name, field_len(content.len()));
        field(number, content, &mut self.0);
    }

    /// Writes an entry up to its value of a length.
    fn entry(&mut self, name: &str, value_len: usize) {
        head(ELEMENT, field_len(name.len()) + field_len(value_len), &mut self.0);
        field(KEY, name.as_bytes(), &mut self.0);
        head(VALUE, value_len, &mut self.0);
    }
}

/// The length of a field with a one-byte key and content of a length.
fn field_len(content: usize) -> usize {
    1 + encoded_len_varint(content as u64) + content
}

fn head(number: u32, content: usize, buffer: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, buffer);
    encode_varint(content as u64, buffer);
}

fn field(number: u32, content: &[u8], buffer: &mut Vec<u8>) {
    head(number, content.len(), buffer);
    buffer.extend_from_slice(content);
}

#[cfg(test)]
mod tests {
    use prost_types::{ListValue, Struct};

    use super::*;

    #[test]
    fn a_struct_is_encoded_as_its_tree_of_values_is() {
        let long = "x".repeat(300);
        let mut writer = StructWriter::new();
        writer.nested("own", |own| {
            own.text("a", "");
            own.text("b", &long);
            own.number("c", 0.0);
            own.number("d", 1.5);
            own.texts("e", [].into_iter());
            own.texts("f", ["", &long].into_iter());
            own.nested("g", |_| {});
        });
        let text = |text: &str| Kind::StringValue(text.to_owned());
        let value = |kind: Kind| Value { kind: Some(kind) };
        let list = |texts: &[&str]| {
            Kind::ListValue(ListValue { values: texts.iter().map(|item| value(text(item))).collect() })
        };
        let structure = |fields: Vec<(&str, Kind)>| Struct {
            fields: fields.into_iter().map(|(name, kind)| (name.to_owned(), value(kind))).collect(),
        };
        let own = structure(vec![
            ("a", text("")),
            ("b", text(&long)),
            ("c", Kind::NumberValue(0.0)),
            ("d", Kind::NumberValue(1.5)),
            ("e", list(&[])),
            ("f", list(&["", &long])),
            ("g", Kind::StructValue(Struct::default())),
        ]);
        assert_eq!(writer.finish(), structure(vec![("own", Kind::StructValue(own))]).encode_to_vec());
    }
}
