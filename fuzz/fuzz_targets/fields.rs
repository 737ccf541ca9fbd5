#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use mixer_adapter::value::{Value, ValueType};
use mixer_adapter_engine::{
    attribute::{Bag, Reads, Vocabulary},
    expression::{Expression, Language},
};

const BODY: &str = r#"json(request.body, key) | "none""#;
const PARAMETER: &str = r#"query(request.path, key) | "none""#;
const PARAMETERS: &str = r#"queryAll(request.path, key) | "none""#;
const SEGMENT: &str = r#"segment(request.path, 2) | "none""#;

static VOCABULARY: LazyLock<Arc<Vocabulary>> = LazyLock::new(|| {
    let mut vocabulary = Vocabulary::new();
    for name in ["request.body", "request.path", "key"] {
        vocabulary.declare(name, ValueType::String).expect("the names differ");
    }
    vocabulary.declare("request.body_truncated", ValueType::Bool).expect("the names differ");
    Arc::new(vocabulary)
});

/// Evaluates an expression; `None` is an error.
fn eval(text: &str, bag: &Bag) -> Option<String> {
    let expression = Expression::compile_in(Language::Cexl, text, bag.vocabulary()).expect("it compiles");
    match expression.eval(bag, &mut Reads::default()).map(Value::from) {
        Ok(Value::String(text)) => Some(text.to_string()),
        Ok(other) => panic!("{other:?}"),
        Err(_) => None,
    }
}

// The first line is a key, the rest is the body and the path of a request.
fuzz_target!(|text: &str| {
    let (key, request) = text.split_once('\n').unwrap_or(("", text));
    let mut bag = Bag::new(VOCABULARY.clone());
    bag.insert("key", key);
    bag.insert("request.body", request);
    bag.insert("request.path", request);
    let field = eval(BODY, &bag);
    match serde_json::from_str::<serde_json::Value>(request) {
        Err(_) => assert!(field.is_none() || request.is_empty(), "a body that is not JSON has no fields"),
        Ok(body) if key.starts_with('/') => {
            if let (Some(field), Some(serde_json::Value::String(expected))) = (field, body.pointer(key)) {
                assert_eq!(field, *expected);
            }
        }
        Ok(_) => {}
    }
    if let (Some(one), Some(all)) = (eval(PARAMETER, &bag), eval(PARAMETERS, &bag)) {
        assert!(all.starts_with(&one), "{one:?} is not the first of {all:?}");
    }
    if let Some(segment) = eval(SEGMENT, &bag) {
        assert!(segment.split('/').all(|part| part != "." && part != ".."), "{segment:?}");
    }
});
