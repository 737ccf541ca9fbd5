use std::{borrow::Cow, fmt, sync::Arc};

use parking_lot::Mutex;
use serde::{
    Serialize, Serializer,
    de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor},
    ser,
};
use serde_json::Number;

use super::{FieldError, is_key};

/// Maximum length of a text in bytes. Its nesting is limited to 128 levels by `serde_json`.
const MAX_BYTES: usize = 1 << 20;

/// Maximum number of values in a text, including nested ones and keys.
const MAX_VALUES: usize = 50_000;

/// Below this number, each integer is a different number for all readers of JSON.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Maximum number of parsed texts of a request.
const MAX_TEXTS: usize = 4;

/// The first JSON text that a request has read, which is usually its body, and the last ones: each is parsed once.
#[derive(Debug, Default)]
pub(crate) struct JsonMemo(Mutex<Vec<Parsed>>);

#[derive(Debug)]
struct Parsed {
    text: Box<str>,
    outcome: Result<Arc<Node>, FieldError>,
}

impl JsonMemo {
    /// Returns a field of a JSON text. A missing field, `null` and an empty text give `None`. Numbers and
    /// booleans become texts, the same for each spelling of a number; arrays and objects become JSON.
    ///
    /// The steps of `path` are keys of objects and indices of arrays, separated by `.`; or `path` is a JSON Pointer.
    ///
    /// # Errors
    /// The text is not JSON, or exceeds a limit; or the path has a key that an object has more than once or in another case; or a number
    /// of the field is too large to be exact.
    pub(crate) fn field(&self, text: &str, path: &str) -> Result<Option<String>, FieldError> {
        if text.is_empty() {
            return Ok(None);
        }
        if text.len() > MAX_BYTES {
            return Err(FieldError::TooLong { max: MAX_BYTES });
        }
        let root = self.parsed(text)?;
        root.find(path)?.map_or(Ok(None), Node::text)
    }

    fn parsed(&self, text: &str) -> Result<Arc<Node>, FieldError> {
        let mut known = self.0.lock();
        if let Some(parsed) = known.iter().find(|parsed| *parsed.text == *text) {
            return parsed.outcome.clone();
        }
        let outcome = parse(text).map(Arc::new).map_err(|e| FieldError::NotJson(e.to_string()));
        if known.len() == MAX_TEXTS {
            known.remove(1);
        }
        known.push(Parsed { text: text.into(), outcome: outcome.clone() });
        outcome
    }
}

fn parse(text: &str) -> serde_json::Result<Node> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let node = Values { left: &mut { MAX_VALUES } }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(node)
}

/// A JSON value with all keys of its objects, equal ones included.
#[derive(Debug)]
enum Node {
    Null,
    Bool(bool),
    Number(Number),
    Text(Box<str>),
    Array(Vec<Node>),
    Object(Vec<(Box<str>, Node)>),
}

impl Node {
    fn find(&self, path: &str) -> Result<Option<&Self>, FieldError> {
        let (steps, separator) = path.strip_prefix('/').map_or((path, '.'), |steps| (steps, '/'));
        let mut found = self;
        for step in steps.split(separator) {
            let step = match separator {
                '/' => Cow::Owned(step.replace("~1", "/").replace("~0", "~")),
                _ => Cow::Borrowed(step),
            };
            let next = match found {
                Self::Object(fields) => field(fields, &step)?,
                Self::Array(items) => step.parse().ok().and_then(|index: usize| items.get(index)),
                _ => None,
            };
            match next {
                Some(node) => found = node,
                None => return Ok(None),
            }
        }
        Ok(Some(found))
    }

    fn text(&self) -> Result<Option<String>, FieldError> {
        match self {
            Self::Null => Ok(None),
            Self::Text(text) => Ok(Some(text.to_string())),
            // Only a number can fail.
            _ => serde_json::to_string(self).map(Some).map_err(|_| FieldError::Inexact),
        }
    }
}

/// Returns the value of a key. Servers take the first or the last of equal keys, and some ignore case (Go's `encoding/json`).
fn field<'n>(fields: &'n [(Box<str>, Node)], key: &str) -> Result<Option<&'n Node>, FieldError> {
    let mut found = fields.iter().filter(|(name, _)| is_key(name, key));
    match (found.next(), found.next()) {
        (None, _) => Ok(None),
        (Some((name, node)), None) if **name == *key => Ok(Some(node)),
        _ => Err(FieldError::AmbiguousKey),
    }
}

/// Returns whether a number was rounded, or is rounded by some readers: such integers have several texts.
fn is_inexact(number: &Number) -> bool {
    number.is_f64() && number.as_f64().is_none_or(|value| value.abs() >= MAX_EXACT)
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(number) if is_inexact(number) => Err(ser::Error::custom(FieldError::Inexact)),
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Array(items) => serializer.collect_seq(items),
            Self::Object(fields) => serializer.collect_map(fields.iter().map(|(key, value)| (key, value))),
        }
    }
}

/// Reads a value and counts it.
struct Values<'l> {
    left: &'l mut usize,
}

impl Values<'_> {
    fn count<E: Error>(&mut self) -> Result<(), E> {
        *self.left = self.left.checked_sub(1).ok_or_else(|| E::custom("it has too many values"))?;
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Values<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(mut self, deserializer: D) -> Result<Node, D::Error> {
        self.count()?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Values<'_> {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
        Ok(Node::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
        Ok(Node::Number(number.into()))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Node, E> {
        if number.fract() == 0.0 && number.abs() < MAX_EXACT {
            return self.visit_i64(number as i64);
        }
        Number::from_f64(number).map(Node::Number).ok_or_else(|| E::custom("a number is out of range"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node, E> {
        Ok(Node::Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(Values { left: self.left })? {
            array.push(item);
        }
        Ok(Node::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut fields: A) -> Result<Node, A::Error> {
        let mut object = Vec::new();
        while let Some(key) = fields.next_key::<Box<str>>()? {
            self.count()?;
            object.push((key, fields.next_value_seed(Values { left: self.left })?));
        }
        Ok(Node::Object(object))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn field(text: &str, path: &str) -> Result<Option<String>, FieldError> {
        JsonMemo::default().field(text, path)
    }

    fn is_not_json(text: &str) -> bool {
        matches!(field(text, "a"), Err(FieldError::NotJson(_)))
    }

    #[test]
    fn a_path_has_keys_and_indices_or_is_a_pointer() {
        let text = r#"{"params": {"name": "x", "a.b": 1, "c/d~e": 2}, "list": [{"k": "v"}, 7], "": 3}"#;
        for (path, value) in [
            ("params.name", Some("x")),
            ("list.0.k", Some("v")),
            ("list.1", Some("7")),
            ("/params/a.b", Some("1")),
            ("/params/c~1d~0e", Some("2")),
            ("", Some("3")),
            ("params.none", None),
            ("params.name.x", None),
            ("list.2", None),
            ("list.k", None),
        ] {
            assert_eq!(field(text, path), Ok(value.map(str::to_owned)), "{path}");
        }
        assert_eq!(field(r#"[{"a": 1}]"#, "a"), Ok(None), "a batch has no such key");
        assert_eq!(field("", "a"), Ok(None));
    }

    #[test]
    fn each_spelling_of_a_value_has_one_text() {
        for (spelled, text) in [
            (r#""a""#, Some("a")),
            (r#""\u0061""#, Some("a")),
            ("100", Some("100")),
            ("1e2", Some("100")),
            ("100.0", Some("100")),
            ("-0.0", Some("0")),
            ("1.5", Some("1.5")),
            ("18446744073709551615", Some("18446744073709551615")),
            ("true", Some("true")),
            ("null", None),
            (r#"[1, {"b" : null}]"#, Some(r#"[1,{"b":null}]"#)),
            ("[1e2, -0.0]", Some("[100,0]")),
            ("9007199254740993", Some("9007199254740993")),
        ] {
            assert_eq!(
                field(&format!(r#"{{"a": {spelled}}}"#), "a"),
                Ok(text.map(str::to_owned)),
                "{spelled}"
            );
        }
    }

    #[test]
    fn an_integer_that_is_too_large_for_one_text_is_an_error() {
        for spelled in ["1e16", "-1e16", "9007199254740992.0", "18446744073709551616", "[1e16]"] {
            let text = format!(r#"{{"a": {spelled}, "b": 1}}"#);
            assert_eq!(field(&text, "a"), Err(FieldError::Inexact), "{spelled}");
            assert_eq!(field(&text, "b"), Ok(Some("1".to_owned())), "{spelled}");
        }
    }

    #[test]
    fn a_key_that_servers_may_read_differently_is_an_error() {
        let kelvin = "{\"\u{212a}ey\": 1}";
        for text in [r#"{"key": 1, "key": 2}"#, r#"{"key": 1, "KEY": 2}"#, r#"{"Key": 1}"#, kelvin] {
            assert_eq!(field(text, "key"), Err(FieldError::AmbiguousKey), "{text}");
            assert_eq!(field(text, "other"), Ok(None), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_not_json_or_exceeds_a_limit_is_an_error() {
        for text in [
            "{\"a\": 1",
            "{\"a\": 1} x",
            "a=1",
            " ",
            "\u{feff}{}",
            "{'a': 1}",
            r#"{"a": "\ud800"}"#,
            "{\"a\": 1e400}",
        ] {
            assert!(is_not_json(text), "{text}");
        }
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert_eq!(field(&nested(127), "a"), Ok(None));
        assert!(is_not_json(&nested(128)));
        let many = |values: usize| format!("[{}1]", "1,".repeat(values - 1));
        assert_eq!(field(&many(MAX_VALUES - 1), "a"), Ok(None));
        assert!(is_not_json(&many(MAX_VALUES)));
        let long = format!("\"{}\"", "a".repeat(MAX_BYTES - 1));
        assert_eq!(field(&long, "a"), Err(FieldError::TooLong { max: MAX_BYTES }));
    }

    #[test]
    fn a_text_is_parsed_once() {
        let memo = JsonMemo::default();
        assert_eq!(memo.field(r#"{"a": 1, "b": 2}"#, "a"), Ok(Some("1".to_owned())));
        let first = memo.parsed(r#"{"a": 1, "b": 2}"#).unwrap();
        assert_eq!(memo.field(r#"{"a": 1, "b": 2}"#, "b"), Ok(Some("2".to_owned())));
        assert!(Arc::ptr_eq(&first, &memo.parsed(r#"{"a": 1, "b": 2}"#).unwrap()));
        for number in 0..10 {
            let other = memo.field(&format!(r#"{{"a": {number}}}"#), "a");
            assert_eq!(other, Ok(Some(number.to_string())), "another text");
            assert!(Arc::ptr_eq(&first, &memo.parsed(r#"{"a": 1, "b": 2}"#).unwrap()));
        }
        assert_eq!(memo.0.lock().len(), MAX_TEXTS);
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            "\\PC{0,8}".prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
                prop::collection::hash_map("[a-d]{1,2}", inner, 0..4)
                    .prop_map(|fields| fields.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_field_is_that_of_serde_json(value in any_json(), pointer in "(/([a-d]{1,2}|[0-3])){1,3}") {
            let text = match value.pointer(&pointer) {
                None | Some(serde_json::Value::Null) => None,
                Some(serde_json::Value::String(text)) => Some(text.clone()),
                // Objects are compared as values: their keys keep the order of the text.
                Some(other) => Some(other.to_string()),
            };
            prop_assert_eq!(field(&value.to_string(), &pointer), Ok(text));
        }

        #[test]
        fn any_text_has_a_field_or_an_error(text in "\\PC{0,40}", path in "\\PC{0,8}") {
            let _ = field(&text, &path);
        }
    }
}
