//! The functions and operators of Mixer's own language, described.

use super::compile::functions::{Function, Signature};
use mixer_adapter_core::value::ValueType;

/// A function or operator of Mixer's own language.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionReference {
    /// The name or the symbol: `match`, `==`.
    pub name: &'static str,
    /// The types of operands and result, `match(STRING, STRING) -> BOOL`; `T` is one type, any, for all operands.
    pub signature: String,
    /// The returned value, in a sentence.
    pub meaning: &'static str,
    /// An expression with it, for a request with the path `/admin/x?page=a%20b`, the header `user-agent: curl/8.5` and the body
    /// `{"params": {"name": "search"}, "limit": 5}`.
    pub example: &'static str,
    /// The value of the example.
    pub value: &'static str,
}

/// Each function with its meaning, an example and its value.
static DOCUMENTATION: &str = include_str!("functions.tsv");

/// Iterates over all functions and operators.
pub fn functions() -> impl Iterator<Item = FunctionReference> {
    DOCUMENTATION.lines().filter_map(|line| {
        let mut columns = line.split('\t');
        let (name, meaning) = (columns.next()?, columns.next()?);
        let (example, value) = (columns.next()?, columns.next()?);
        let signature = signature(Function::find(name)?.signature());
        Some(FunctionReference { name, signature, meaning, example, value })
    })
}

fn signature(types: &Signature) -> String {
    let name = types.symbol;
    let arguments: Vec<&str> = types.arguments.iter().map(type_name).collect();
    let call = match (&arguments[..], name) {
        ([map, key], "[]") => format!("{map}[{key}]"),
        ([left, right], _) if !name.starts_with(|first: char| first.is_alphabetic()) => {
            format!("{left} {name} {right}")
        }
        _ => {
            let receiver = types.receiver.map(|receiver| format!("{receiver}.")).unwrap_or_default();
            format!("{receiver}{name}({})", arguments.join(", "))
        }
    };
    format!("{call} -> {}", type_name(&types.returns))
}

fn type_name(value_type: &ValueType) -> &'static str {
    match value_type {
        ValueType::Unspecified => "T",
        named => named.as_str_name(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        attribute::{Bag, Reads, Vocabulary, parse_text},
        expression::{Evaluated, Expression, compile::functions::SIGNATURES},
    };

    #[test]
    fn every_example_has_the_stated_value() {
        let mut vocabulary = Vocabulary::new();
        vocabulary.declare_standard();
        vocabulary.declare("request.body", ValueType::String).unwrap();
        let text = "request.url_path=/admin/x,request.method=GET,request.size=5,request.host=example.com,source.ip=10.0.0.1,\
                    request.time=2019-05-06T07:08:09Z,request.headers=user-agent=curl/8.5";
        let attributes = parse_text(text, &vocabulary).unwrap();
        let mut bag = Bag::new(Arc::new(vocabulary));
        for (name, value) in attributes {
            bag.insert(&name, value);
        }
        bag.insert("request.path", "/admin/x?page=a%20b");
        bag.insert("request.body", r#"{"params": {"name": "search"}, "limit": 5}"#);
        assert_eq!(functions().count(), SIGNATURES.len(), "every function is documented");
        for FunctionReference { name, example, value, .. } in functions() {
            let expression = Expression::compile(example, bag.vocabulary()).unwrap();
            let found = match expression.eval(&bag, &mut Reads::default()).unwrap() {
                Evaluated::Bool(truth) => truth.to_string(),
                Evaluated::Int64(number) => number.to_string(),
                Evaluated::String(text) => format!("{text:?}"),
                other => panic!("{name}: {other:?}"),
            };
            assert_eq!(found, value, "{name}: {example}");
        }
    }

    #[test]
    fn signatures_have_the_form_of_a_call() {
        let signature = |name| functions().find(|function| function.name == name).unwrap().signature;
        assert_eq!(signature("=="), "T == T -> BOOL");
        assert_eq!(signature("[]"), "STRING_MAP[STRING] -> STRING");
        assert_eq!(signature("conditional"), "conditional(BOOL, T, T) -> T");
        assert_eq!(signature("matches"), "STRING.matches(STRING) -> BOOL");
    }
}
