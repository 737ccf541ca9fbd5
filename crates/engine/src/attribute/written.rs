//! Attributes as people write them: `request.path=/x,source.ip=ip:10.0.0.1`, or an object of YAML or JSON.
//!
//! A value is of the type that its prefix names; without a prefix, of the type that is declared for its attribute; an
//! attribute that is not declared is INT64, DOUBLE or BOOL where it looks like one, and STRING otherwise.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value as Json;

use super::{AttributeValue, StringMap, Vocabulary};
use mixer_adapter_core::value::{ValueType, parse_duration};

/// What is wrong with written attributes, and how to write them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// Names and values, in the order in which they were written; of two values of one attribute the last counts.
pub type Written = Vec<(String, AttributeValue)>;

/// A prefix and what it makes of the text behind it; `bytes` are any bytes in base64, where an address should be.
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

/// Reads `name=value,name=value`. In a value, `\,` is a comma and `\\` a backslash; the entries of a map are
/// `key=value;key=value`, in which `\;` and `\=` stand for themselves, too.
pub fn read_text(text: &str, types: &Vocabulary) -> Result<Written, Unreadable> {
    if text.trim().is_empty() {
        return Ok(Written::new());
    }
    let attributes = split(text, ',').into_iter().map(|attribute| {
        let (name, value) =
            attribute.split_once('=').filter(|(name, _)| !name.trim().is_empty()).ok_or_else(|| {
                Unreadable(format!(
                    "{attribute:?} is no attribute: write NAME=VALUE, and \\, for a comma in a value"
                ))
            })?;
        let name = name.trim();
        Ok((name.to_owned(), read_value(name, value, types, &unescape)?))
    });
    attributes.collect()
}

/// Reads names and values that are apart already, as in the query of a URL: what [`read_text`] reads, without escapes.
pub fn read_pairs(
    pairs: impl IntoIterator<Item = (String, String)>,
    types: &Vocabulary,
) -> Result<Written, Unreadable> {
    let pairs = pairs.into_iter().map(|(name, value)| {
        let value = read_value(&name, &value, types, &str::to_owned)?;
        Ok((name, value))
    });
    pairs.collect()
}

/// Reads an object of names and values. Texts are read as behind the `=` of a command line, but for escapes; numbers,
/// truths and objects of texts are what they are.
pub fn read_json(json: &Json, types: &Vocabulary) -> Result<Written, Unreadable> {
    let Json::Object(attributes) = json else {
        return Err(Unreadable(format!(
            "attributes are an object of names and values, such as {{\"request.path\": \"/x\"}}; this is {}",
            describe(json)
        )));
    };
    attributes.iter().map(|(name, value)| Ok((name.clone(), json_value(name, value, types)?))).collect()
}

fn read_value(
    name: &str,
    text: &str,
    types: &Vocabulary,
    unescape: &dyn Fn(&str) -> String,
) -> Result<AttributeValue, Unreadable> {
    let declared = types.find(name).map(|declared| declared.value_type);
    let (kind, text) = match (prefixed(text), declared) {
        (Some(prefixed), _) => prefixed,
        (None, Some(declared)) => (Kind::Typed(declared), text),
        (None, None) => return Ok(by_form(&unescape(text))),
    };
    typed(kind, text, unescape).ok_or_else(|| wrong(name, kind, text, declared))
}

fn json_value(name: &str, json: &Json, types: &Vocabulary) -> Result<AttributeValue, Unreadable> {
    let declared = types.find(name).map(|declared| declared.value_type);
    let kind = declared.map(Kind::Typed);
    let value = match (json, declared) {
        (Json::String(text), None) if prefixed(text).is_none() => Some(text.as_str().into()),
        (Json::String(text), _) => return read_value(name, text, types, &str::to_owned),
        (Json::Bool(truth), Some(ValueType::Bool) | None) => Some((*truth).into()),
        (Json::Number(number), Some(ValueType::Double)) => number.as_f64().map(Into::into),
        (Json::Number(number), Some(ValueType::Int64)) => number.as_i64().map(Into::into),
        (Json::Number(number), None) => {
            number.as_i64().map(Into::into).or_else(|| number.as_f64().map(Into::into))
        }
        (Json::Object(entries), Some(ValueType::StringMap) | None) => {
            let entries = entries.iter().map(|(key, value)| Some((key.as_str(), value.as_str()?)));
            let entries = entries.collect::<Option<Vec<_>>>();
            let wrong = || Unreadable(format!("attribute {name}: the values of a map are texts, in quotes"));
            return Ok(entries.ok_or_else(wrong)?.into_iter().collect::<StringMap>().into());
        }
        _ => None,
    };
    value.ok_or_else(|| match kind {
        Some(kind) => wrong(name, kind, &json.to_string(), declared),
        None => Unreadable(format!("attribute {name}: {} is no value of an attribute", describe(json))),
    })
}

/// A value that says its type.
fn prefixed(text: &str) -> Option<(Kind, &str)> {
    let (prefix, rest) = text.split_once(':')?;
    let (_, kind) = PREFIXES.iter().find(|(known, _)| *known == prefix)?;
    Some((*kind, rest))
}

fn by_form(text: &str) -> AttributeValue {
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    // Not "inf" and "nan", which are more likely names.
    let is_number = text.bytes().any(|byte| byte.is_ascii_digit());
    match (text, text.parse::<f64>()) {
        ("true", _) => true.into(),
        ("false", _) => false.into(),
        (_, Ok(number)) if is_number => number.into(),
        (text, _) => text.into(),
    }
}

/// A text as a value of that type. Maps are taken apart before `unescape` is applied to their pieces.
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

fn wrong(name: &str, kind: Kind, text: &str, declared: Option<ValueType>) -> Unreadable {
    let (what, example) = match kind {
        Kind::Bytes => ("base64", "AAECAw=="),
        Kind::Typed(value_type) => match value_type {
            ValueType::Int64 => ("INT64", "200"),
            ValueType::Double => ("DOUBLE", "0.5"),
            ValueType::Bool => ("BOOL", "true"),
            ValueType::IpAddress => ("IP_ADDRESS", "10.0.0.1"),
            ValueType::Timestamp => ("TIMESTAMP", "2019-05-06T07:08:09Z"),
            ValueType::Duration => ("DURATION", "1m30s"),
            ValueType::StringMap => ("STRING_MAP", "a=b;c=d"),
            _ => ("STRING", "\"text\" in quotes"),
        },
    };
    let is_declared = matches!(kind, Kind::Typed(value_type) if Some(value_type) == declared);
    let because = if is_declared { ", which it is declared as" } else { "" };
    Unreadable(format!(
        "attribute {name}: {text:?} is no {what}{because}; write it like {example}, or string:TEXT where a text is meant"
    ))
}

fn describe(json: &Json) -> &'static str {
    match json {
        Json::Null => "nothing (null)",
        Json::Bool(_) => "true or false",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "a list",
        Json::Object(_) => "an object",
    }
}

/// The parts between separators that no backslash stands before; their escapes are still in them.
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

/// The text without the backslashes that keep what separates.
fn unescape(text: &str) -> String {
    let mut unescaped = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let kept = letters.next_if(|next| letter == '\\' && matches!(next, ',' | ';' | '=' | '\\'));
        unescaped.push(kept.unwrap_or(letter));
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
        let written = read_text(text, &standard()).unwrap();
        assert_eq!(written.len(), 1, "{text}");
        written[0].1.clone()
    }

    fn map(entries: &[(&str, &str)]) -> AttributeValue {
        entries.iter().copied().collect::<StringMap>().into()
    }

    #[test]
    fn prefixes_name_the_type_whatever_is_declared() {
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
    fn without_prefix_the_declared_type_counts_and_then_the_form() {
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
    fn what_separates_is_kept_behind_a_backslash() {
        let written = read_text(r"request.path=/a\,b=c\d, a.b=map:x\;y=1\,2;z=\\", &standard()).unwrap();
        let expected = [
            ("request.path".to_owned(), AttributeValue::from(r"/a,b=c\d")),
            ("a.b".to_owned(), map(&[("x;y", "1,2"), ("z", r"\")])),
        ];
        assert_eq!(written, expected);
        assert_eq!(read_text(" ", &standard()), Ok(Vec::new()));
    }

    #[test]
    fn an_object_has_values_of_its_own_types() {
        let json = json!({
            "request.path": "/a,b", "response.code": 200, "a.number": 1.5, "a.truth": true, "a.text": "5",
            "request.headers": {"a": "b"}, "source.ip": "10.0.0.1", "a.length": "duration:5s",
        });
        let expected: Vec<(String, AttributeValue)> = [
            ("a.length", AttributeValue::Duration(5_000_000_000)),
            ("a.number", 1.5.into()),
            ("a.text", "5".into()),
            ("a.truth", true.into()),
            ("request.headers", map(&[("a", "b")])),
            ("request.path", "/a,b".into()),
            ("response.code", 200.into()),
            ("source.ip", bytes::Bytes::from_static(&[10, 0, 0, 1]).into()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        assert_eq!(read_json(&json, &standard()), Ok(expected));
    }

    #[test]
    fn pairs_are_read_as_they_stand() {
        let pairs = [("request.path", r"/a\,b=c"), ("a.b", "5"), ("source.ip", "::1")];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let values: Vec<_> =
            read_pairs(pairs, &standard()).unwrap().into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, [r"/a\,b=c".into(), 5.into(), "::1".parse::<std::net::IpAddr>().unwrap().into()]);
    }

    #[test]
    fn what_cannot_be_read_says_what_to_write() {
        for (text, reason) in [
            ("request.path", "\"request.path\" is no attribute: write NAME=VALUE"),
            ("a.b=c,", "\"\" is no attribute"),
            ("=x", "\"=x\" is no attribute"),
            (
                "response.code=x",
                "attribute response.code: \"x\" is no INT64, which it is declared as; write it like 200, or string:TEXT",
            ),
            ("a.b=ip:x", "attribute a.b: \"x\" is no IP_ADDRESS; write it like 10.0.0.1"),
            ("a.b=map:x", "is no STRING_MAP"),
            ("a.b=bytes:?", "is no base64"),
            ("request.time=yesterday", "is no TIMESTAMP, which it is declared as; write it like 2019-05-06"),
        ] {
            let error = read_text(text, &standard()).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        for (json, reason) in [
            (json!(["x"]), "this is a list"),
            (json!({"a.b": null}), "attribute a.b: nothing (null) is no value"),
            (json!({"a.b": {"c": 5}}), "the values of a map are texts"),
            (json!({"request.path": 5}), "attribute request.path: \"5\" is no STRING"),
            (json!({"response.code": 5.5}), "is no INT64"),
        ] {
            let error = read_json(&json, &standard()).unwrap_err().to_string();
            assert!(error.contains(reason), "{json}: {error}");
        }
    }
}
