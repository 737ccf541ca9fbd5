//! The body shared by the fuzz target and the property tests.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use mixer_adapter::{
    prost_types::Timestamp,
    value::{Value, ValueType},
};
use mixer_adapter_engine::{
    attribute::{AttributeValue, Bag, Reads, StringMap, Vocabulary},
    expression::{Expression, Language},
};

/// The attributes that expressions given to [`run`] may use: two of every type, `as` and `bs`, `ai` and `bi`, ...
pub(crate) const ATTRIBUTES: [(&str, ValueType); 11] = [
    ("s", ValueType::String),
    ("i", ValueType::Int64),
    ("d", ValueType::Double),
    ("b", ValueType::Bool),
    ("t", ValueType::Timestamp),
    ("dur", ValueType::Duration),
    ("ip", ValueType::IpAddress),
    ("r", ValueType::StringMap),
    ("uri", ValueType::Uri),
    ("mail", ValueType::EmailAddress),
    ("dns", ValueType::DnsName),
];

/// Compiles an expression and evaluates it for requests with all attributes, with none, and with wrong types. Returns
/// whether it compiled.
///
/// # Panics
/// An invariant that holds for every expression and request is violated.
pub(crate) fn run(language: Language, text: &str) -> bool {
    static BAGS: LazyLock<Vec<Bag>> = LazyLock::new(bags);
    let expression = match Expression::compile_in(language, text, BAGS[0].vocabulary()) {
        Ok(expression) => expression,
        Err(error) => {
            let span = error.span();
            assert!(
                text.get(span.start as usize..span.end as usize).is_some(),
                "{error} is at {span:?} of {text}"
            );
            assert!(error.render(text).starts_with("error: "));
            return false;
        }
    };
    let mut reads = Reads::default();
    for bag in BAGS.iter() {
        reads.clear();
        match expression.eval(bag, &mut reads) {
            Ok(value) => {
                assert_eq!(value.value_type(), expression.value_type(), "{text}");
                assert_eq!(Value::from(value).value_type(), expression.value_type(), "{text}");
            }
            Err(error) => assert!(error.render(text).starts_with("error: ")),
        }
        assert!(reads.referenced(bag.vocabulary()).count() <= reads.all(bag.vocabulary()).count());
    }
    true
}

fn bags() -> Vec<Bag> {
    let mut vocabulary = Vocabulary::new();
    for (name, value_type) in ATTRIBUTES {
        for letter in ["a", "b"] {
            // Cannot fail: the names differ.
            let _ = vocabulary.declare(format!("{letter}{name}"), value_type);
        }
    }
    let vocabulary = Arc::new(vocabulary);
    let map: StringMap = [("k", "v"), ("", "x"), ("abc", "")].into_iter().collect();
    let kinds: [AttributeValue; 10] = [
        "abc".into(),
        7.into(),
        f64::NAN.into(),
        true.into(),
        Timestamp { seconds: i64::MAX, nanos: i32::MIN }.into(),
        AttributeValue::Duration(i64::MIN),
        Bytes::from_static(&[1, 2, 3, 4]).into(),
        map.into(),
        "http://a.b/".into(),
        "a@b.c".into(),
    ];
    let filled = |shift: usize| {
        let mut bag = Bag::new(Arc::clone(&vocabulary));
        for (index, (name, _)) in ATTRIBUTES.iter().enumerate() {
            for letter in ["a", "b"] {
                bag.insert(format!("{letter}{name}"), kinds[(index + shift) % kinds.len()].clone());
            }
        }
        bag
    };
    std::iter::once(Bag::new(Arc::clone(&vocabulary))).chain((0..kinds.len()).map(filled)).collect()
}
