//! Parses attributes as text, such as `request.path=/x,source.ip=ip:10.0.0.1`, or as a YAML or JSON object.
//!
//! A prefix or else the declaration of the attribute determines the type of a value. The type of an undeclared attribute
//! is inferred: INT64, DOUBLE or BOOL if the value parses as such, otherwise STRING.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value as Json;

use super::{AttributeValue, StringMap, Vocabulary};
use mixer_adapter_core::value::{ValueType, parse_duration};

/// Attributes that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseAttributesError {
    /// Not of the form `NAME=VALUE`.
    #[error("{0:?} is not an attribute; write NAME=VALUE, and \\, for a comma in a value")]
    Assignment(String),
    /// Not an object.
    #[error("attributes must be an object such as {{\"request.path\": \"/x\"}}, not {0}")]
    NotAnObject(&'static str),
    /// A map with values that are not strings.
    #[error("attribute {0}: the values of a map must be strings, in quotes")]
    MapValue(String),
    /// A kind of value that attributes do not have.
    #[error("attribute {name}: {found} is not a valid value")]
    Kind {
        /// The attribute.
        name: String,
        /// The kind of the value.
        found: &'static str,
    },
    /// A value that is not of the expected type.
    #[error("attribute {name}: {value:?} is not a valid {expected}{}; write it like {example}, or string:TEXT for a string", because(*.declared))]
    Value {
        /// The attribute.
        name: String,
        /// The value.
        value: String,
        /// The expected type.
        expected: &'static str,
        /// A valid value.
        example: &'static str,
        /// Whether the declaration determines the type.
        declared: bool,
    },
}

fn because(declared: bool) -> &'static str {
    if declared { ", its declared type" } else { "" }
}

/// Names and values in source order; the last of several values of an attribute wins.
pub type ParsedAttributes = Vec<(String, AttributeValue)>;

/// The prefixes with the types they denote; `bytes` are base64-encoded.
const PREFIXES: [(&str, Kind); 9] = [
    ("string", Kind::Typed(ValueType::String)),
    ("int", Kind::Typed(ValueType::Int64)),
    ("double", Kind::Typed(ValueType::Double)),
    ("bool", Kind::Typed(ValueType::Bool)),
    ("ip", Kind::Typed(ValueType::IpAddress)),
    ("time", Kind::Typed(ValueType::Timestamp)),
    ("duration", Kind::Typed(ValueType::Duration)),
    ("map", Kind::Typed(ValueType::StringMap)),
    ("bytes", Kind::Bytes),
];

#[derive(Clone, Copy)]
enum Kind {
    Typed(ValueType),
    Bytes,
}

/// Parses `name=value,name=value`. In a value, `\,` is a comma and `\\` a backslash. A map is written
/// `key=value;key=value`, with the escapes `\;` and `\=`.
pub fn parse_text(text: &str, types: &Vocabulary) -> Result<ParsedAttributes, ParseAttributesError> {
    if text.trim().is_empty() {
        return Ok(ParsedAttributes::new());
    }
    let attributes = split(text, ',').into_iter().map(|attribute| {
        let (name, value) = attribute
            .split_once('=')
            .filter(|(name, _)| !name.trim().is_empty())
            .ok_or_else(|| ParseAttributesError::Assignment(attribute.to_owned()))?;
        let name = name.trim();
        Ok((name.to_owned(), parse_value(name, value, types, prefixed, &unescape)?))
    });
    attributes.collect()
}

/// Parses separate names and values, such as a URL's query, without escapes.
pub fn parse_pairs(
    pairs: impl IntoIterator<Item = (String, String)>,
    types: &Vocabulary,
) -> Result<ParsedAttributes, ParseAttributesError> {
    let pairs = pairs.into_iter().map(|(name, value)| {
        let value = parse_value(&name, &value, types, prefixed, &str::to_owned)?;
        Ok((name, value))
    });
    pairs.collect()
}

/// Parses the value of an attribute as its declared type, without prefixes; `None` if it is not of the type.
pub fn parse_declared(text: &str, value_type: ValueType) -> Option<AttributeValue> {
    typed(Kind::Typed(value_type), text, &str::to_owned)
}

/// Parses an object. Strings are parsed like the values of [`parse_text`], but without escapes; numbers, booleans and
/// objects of strings are converted.
pub fn parse_json(json: &Json, types: &Vocabulary) -> Result<ParsedAttributes, ParseAttributesError> {
    parse_object(json, types, prefixed)
}

/// Parses the attributes of a line of a decision log, whose strings have no prefixes.
pub fn parse_logged(json: &Json, types: &Vocabulary) -> Result<ParsedAttributes, ParseAttributesError> {
    parse_object(json, types, |_| None)
}

/// Splits the prefix from a value, if values have prefixes.
type Prefixed = fn(&str) -> Option<(Kind, &str)>;

fn parse_object(
    json: &Json,
    types: &Vocabulary,
    prefixed: Prefixed,
) -> Result<ParsedAttributes, ParseAttributesError> {
    let Json::Object(attributes) = json else {
        return Err(ParseAttributesError::NotAnObject(describe(json)));
    };
    let attributes = attributes.iter();
    attributes.map(|(name, value)| Ok((name.clone(), json_value(name, value, types, prefixed)?))).collect()
}

fn parse_value(
    name: &str,
    text: &str,
    types: &Vocabulary,
    prefixed: Prefixed,
    unescape: &dyn Fn(&str) -> String,
) -> Result<AttributeValue, ParseAttributesError> {
    let declared = types.find(name).map(|declared| declared.value_type);
    let (kind, text) = match (prefixed(text), declared) {
        (Some(prefixed), _) => prefixed,
        (None, Some(declared)) => (Kind::Typed(declared), text),
        (None, None) => return Ok(infer(&unescape(text))),
    };
    typed(kind, text, unescape).ok_or_else(|| invalid(name, kind, text, declared))
}

fn json_value(
    name: &str,
    json: &Json,
    types: &Vocabulary,
    prefixed: Prefixed,
) -> Result<AttributeValue, ParseAttributesError> {
    let declared = types.find(name).map(|declared| declared.value_type);
    let kind = declared.map(Kind::Typed);
    let value = match (json, declared) {
        (Json::String(text), None) if prefixed(text).is_none() => Some(text.as_str().into()),
        (Json::String(text), _) => return parse_value(name, text, types, prefixed, &str::to_owned),
        (Json::Bool(value), Some(ValueType::Bool) | None) => Some((*value).into()),
        (Json::Number(number), Some(ValueType::Double)) => number.as_f64().map(Into::into),
        (Json::Number(number), Some(ValueType::Int64)) => number.as_i64().map(Into::into),
        (Json::Number(number), None) => {
            number.as_i64().map(Into::into).or_else(|| number.as_f64().map(Into::into))
        }
        (Json::Object(entries), Some(ValueType::StringMap) | None) => {
            let entries = entries.iter().map(|(key, value)| Some((key.as_str(), value.as_str()?)));
            let entries = entries.collect::<Option<Vec<_>>>();
            let entries = entries.ok_or_else(|| ParseAttributesError::MapValue(name.to_owned()))?;
            return Ok(entries.into_iter().collect::<StringMap>().into());
        }
        _ => None,
    };
    value.ok_or_else(|| match kind {
        Some(kind) => invalid(name, kind, &json.to_string(), declared),
        None => ParseAttributesError::Kind { name: name.to_owned(), found: describe(json) },
    })
}

/// Splits the prefix from a value.
fn prefixed(text: &str) -> Option<(Kind, &str)> {
    let (prefix, rest) = text.split_once(':')?;
    let (_, kind) = PREFIXES.iter().find(|(known, _)| *known == prefix)?;
    Some((*kind, rest))
}

fn infer(text: &str) -> AttributeValue {
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    // "inf" and "nan" are more likely names.
    let is_number = text.bytes().any(|byte| byte.is_ascii_digit());
    match (text, text.parse::<f64>()) {
        ("true", _) => true.into(),
        ("false", _) => false.into(),
        (_, Ok(number)) if is_number => number.into(),
        (text, _) => text.into(),
    }
}

/// Parses a value of a known type. Maps are split before their parts are unescaped.
fn typed(kind: Kind, text: &str, unescape: &dyn Fn(&str) -> String) -> Option<AttributeValue> {
    let value_type = match kind {
        Kind::Bytes => {
            return Some(bytes::Bytes::from(STANDARD.decode(unescape(text)).ok()?).into());
        }
        Kind::Typed(value_type) => value_type,
    };
    let whole = unescape(text);
    Some(match value_type {
        ValueType::String | ValueType::EmailAddress | ValueType::Uri | ValueType::DnsName => whole.into(),
        ValueType::Int64 => whole.parse::<i64>().ok()?.into(),
        ValueType::Double => whole.parse::<f64>().ok()?.into(),
        ValueType::Bool => whole.parse::<bool>().ok()?.into(),
        ValueType::IpAddress => whole.parse::<std::net::IpAddr>().ok()?.into(),
        ValueType::Timestamp => whole.parse::<prost_types::Timestamp>().ok()?.into(),
        ValueType::Duration => AttributeValue::Duration(parse_duration(&whole)?),
        ValueType::StringMap => {
            let entries = split(text, ';').into_iter().filter(|entry| !entry.is_empty()).map(|entry| {
                let [key, value] = split(entry, '=')[..] else { return None };
                Some((unescape(key), unescape(value)))
            });
            entries.collect::<Option<Vec<_>>>()?.into_iter().collect::<StringMap>().into()
        }
        ValueType::Unspecified => return None,
    })
}

fn invalid(name: &str, kind: Kind, text: &str, declared: Option<ValueType>) -> ParseAttributesError {
    let (expected, example) = match kind {
        Kind::Bytes => ("base64", "AAECAw=="),
        Kind::Typed(value_type) => match value_type {
            ValueType::Int64 => ("INT64", "200"),
            ValueType::Double => ("DOUBLE", "0.5"),
            ValueType::Bool => ("BOOL", "true"),
            ValueType::IpAddress => ("IP_ADDRESS", "10.0.0.1"),
            ValueType::Timestamp => ("TIMESTAMP", "2019-05-06T07:08:09Z"),
            ValueType::Duration => ("DURATION", "1m30s"),
            ValueType::StringMap => ("STRING_MAP", "a=b;c=d"),
            _ => ("STRING", "\"text\", in quotes"),
        },
    };
    let declared = matches!(kind, Kind::Typed(value_type) if Some(value_type) == declared);
    let (name, value) = (name.to_owned(), text.to_owned());
    ParseAttributesError::Value { name, value, expected, example, declared }
}

fn describe(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a string",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

/// Splits at separators that are not escaped; escapes are preserved.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (index, letter) in text.char_indices() {
        if letter == separator && !escaped {
            parts.push(&text[start..index]);
            start = index + letter.len_utf8();
        }
        escaped = letter == '\\' && !escaped;
    }
    parts.push(&text[start..]);
    parts
}

/// Resolves escaped separators.
fn unescape(text: &str) -> String {
    let mut unescaped = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let escaped = letters.next_if(|next| letter == '\\' && matches!(next, ',' | ';' | '=' | '\\'));
        unescaped.push(escaped.unwrap_or(letter));
    }
    unescaped
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn standard() -> Vocabulary {
        let mut vocabulary = Vocabulary::new();
        vocabulary.declare_standard();
        vocabulary
    }

    fn one(text: &str) -> AttributeValue {
        let attributes = parse_text(text, &standard()).unwrap();
        assert_eq!(attributes.len(), 1, "{text}");
        attributes[0].1.clone()
    }

    fn map(entries: &[(&str, &str)]) -> AttributeValue {
        entries.iter().copied().collect::<StringMap>().into()
    }

    #[test]
    fn a_prefix_overrides_the_declared_type() {
        let time = prost_types::Timestamp { seconds: 1_557_126_489, nanos: 0 };
        for (text, value) in [
            ("response.code=string:200", AttributeValue::from("200")),
            ("request.path=int:-5", (-5).into()),
            ("a.b=double:1", 1.0.into()),
            ("a.b=bool:true", true.into()),
            ("a.b=ip:10.0.0.1", bytes::Bytes::from_static(&[10, 0, 0, 1]).into()),
            ("a.b=time:2019-05-06T07:08:09Z", time.into()),
            ("a.b=duration:1m30s", AttributeValue::Duration(90_000_000_000)),
            ("a.b=map:a=b;c=d", map(&[("a", "b"), ("c", "d")])),
            ("a.b=map:", map(&[])),
            ("a.b=bytes:AAE=", bytes::Bytes::from_static(&[0, 1]).into()),
            ("a.b=string:int:5", "int:5".into()),
        ] {
            assert_eq!(one(text), value, "{text}");
        }
    }

    #[test]
    fn without_a_prefix_the_declared_type_applies_or_the_type_is_inferred() {
        for (text, value) in [
            ("request.path=200", AttributeValue::from("200")),
            ("request.path=http://x", "http://x".into()),
            ("response.code=200", 200.into()),
            ("source.ip=::1", AttributeValue::from("::1".parse::<std::net::IpAddr>().unwrap())),
            ("request.headers=a=b", map(&[("a", "b")])),
            ("a.b=200", 200.into()),
            ("a.b=1.5", 1.5.into()),
            ("a.b=false", false.into()),
            ("a.b=inf", "inf".into()),
            ("a.b=", "".into()),
        ] {
            assert_eq!(one(text), value, "{text}");
        }
    }

    #[test]
    fn a_backslash_escapes_separators() {
        let attributes = parse_text(r"request.path=/a\,b=c\d, a.b=map:x\;y=1\,2;z=\\", &standard()).unwrap();
        let expected = [
            ("request.path".to_owned(), AttributeValue::from(r"/a,b=c\d")),
            ("a.b".to_owned(), map(&[("x;y", "1,2"), ("z", r"\")])),
        ];
        assert_eq!(attributes, expected);
        assert_eq!(parse_text(" ", &standard()), Ok(Vec::new()));
    }

    #[test]
    fn the_values_of_an_object_are_converted() {
        let json = json!({
            "request.path": "/a,b", "response.code": 200, "a.number": 1.5, "a.flag": true, "a.text": "5",
            "request.headers": {"a": "b"}, "source.ip": "10.0.0.1", "a.length": "duration:5s",
        });
        let expected: Vec<(String, AttributeValue)> = [
            ("a.flag", true.into()),
            ("a.length", AttributeValue::Duration(5_000_000_000)),
            ("a.number", 1.5.into()),
            ("a.text", "5".into()),
            ("request.headers", map(&[("a", "b")])),
            ("request.path", "/a,b".into()),
            ("response.code", 200.into()),
            ("source.ip", bytes::Bytes::from_static(&[10, 0, 0, 1]).into()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        assert_eq!(parse_json(&json, &standard()), Ok(expected));
        // Clients send such texts.
        let logged = parse_logged(&json!({"request.host": "time:8080", "x": "int:5"}), &standard()).unwrap();
        assert_eq!(logged[0].1, "time:8080".into());
        assert_eq!(logged[1].1, "int:5".into());
    }

    #[test]
    fn pairs_are_parsed_without_escapes() {
        let pairs = [("request.path", r"/a\,b=c"), ("a.b", "5"), ("source.ip", "::1")];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let values: Vec<_> =
            parse_pairs(pairs, &standard()).unwrap().into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, [r"/a\,b=c".into(), 5.into(), "::1".parse::<std::net::IpAddr>().unwrap().into()]);
    }

    #[test]
    fn errors_show_how_to_write_the_value() {
        for (text, reason) in [
            ("request.path", "\"request.path\" is not an attribute; write NAME=VALUE"),
            ("a.b=c,", "\"\" is not an attribute"),
            ("=x", "\"=x\" is not an attribute"),
            (
                "response.code=x",
                "attribute response.code: \"x\" is not a valid INT64, its declared type; write it like 200, or string:TEXT",
            ),
            ("a.b=ip:x", "attribute a.b: \"x\" is not a valid IP_ADDRESS; write it like 10.0.0.1"),
            ("a.b=map:x", "is not a valid STRING_MAP"),
            ("a.b=bytes:?", "is not a valid base64"),
            (
                "request.time=yesterday",
                "is not a valid TIMESTAMP, its declared type; write it like 2019-05-06",
            ),
        ] {
            let error = parse_text(text, &standard()).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        for (json, reason) in [
            (json!(["x"]), "not a list"),
            (json!({"a.b": null}), "attribute a.b: null is not a valid value"),
            (json!({"a.b": {"c": 5}}), "the values of a map must be strings"),
            (json!({"request.path": 5}), "attribute request.path: \"5\" is not a valid STRING"),
            (json!({"response.code": 5.5}), "is not a valid INT64"),
        ] {
            let error = parse_json(&json, &standard()).unwrap_err().to_string();
            assert!(error.contains(reason), "{json}: {error}");
        }
    }
}
