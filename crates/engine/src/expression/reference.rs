//! The functions and operators of Mixer's own language, described.

use std::fmt::Write as _;

use super::{
    code::Relation,
    compile::functions::{Function, NAMES},
};
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
    /// An expression with it, for a request with the path `/admin/x` and the header `user-agent: curl/8.5`.
    pub example: &'static str,
    /// The value of the example.
    pub value: &'static str,
}

/// Iterates over all functions and operators.
pub fn functions() -> impl Iterator<Item = FunctionReference> {
    NAMES.iter().filter_map(|(function, name, _)| {
        let (_, meaning, example, value) =
            DOCUMENTATION.iter().find(|(documented, ..)| documented == function)?;
        Some(FunctionReference { name, signature: signature(*function, name), meaning, example, value })
    })
}

fn signature(function: Function, name: &str) -> String {
    let types = function.signature();
    let type_name = |value_type: &ValueType| match value_type {
        ValueType::Unspecified => "T".to_owned(),
        named => named.to_string(),
    };
    let arguments: Vec<String> = types.arguments.iter().map(type_name).collect();
    let mut text = match (&arguments[..], name) {
        ([map, key], "[]") => format!("{map}[{key}]"),
        ([left, right], _) if !name.starts_with(|first: char| first.is_alphabetic()) => {
            format!("{left} {name} {right}")
        }
        _ => {
            let receiver = types.receiver.map(|receiver| format!("{receiver}.")).unwrap_or_default();
            format!("{receiver}{name}({})", arguments.join(", "))
        }
    };
    let _ = write!(text, " -> {}", type_name(&types.returns));
    text
}

/// Each function with its meaning, an example and its value.
const DOCUMENTATION: [(Function, &str, &str, &str); NAMES.len()] = [
    (
        Function::Or,
        "Whether either operand is true.",
        r#"request.url_path == "/x" || request.url_path == "/admin/x""#,
        "true",
    ),
    (
        Function::And,
        "Whether both operands are true.",
        r#"match(request.url_path, "/admin*") && request.method == "GET""#,
        "true",
    ),
    (
        Function::FirstOf,
        "The first operand that is present, even if it is empty. Binds tighter than ==.",
        r#"request.headers["x-user"] | "nobody""#,
        r#""nobody""#,
    ),
    (
        Function::Add,
        "The sum of numbers, or the concatenation of texts. Integers wrap around.",
        r#""user-" + request.method"#,
        r#""user-GET""#,
    ),
    (
        Function::Index,
        "The entry of a map. A key that is not in the map is absent for |, and \"\" elsewhere.",
        r#"request.headers["user-agent"]"#,
        r#""curl/8.5""#,
    ),
    (
        Function::Compare(Relation::Equal),
        "Whether the operands are equal.",
        r#"request.url_path == "/admin/x""#,
        "true",
    ),
    (
        Function::Compare(Relation::NotEqual),
        "Whether the operands differ.",
        r#"request.url_path != "/admin/x""#,
        "false",
    ),
    (
        Function::Compare(Relation::Less),
        "Whether the first operand is less. Texts compare by their bytes.",
        "request.size < 100",
        "true",
    ),
    (
        Function::Compare(Relation::LessOrEqual),
        "Whether the first operand is less or equal.",
        "request.size <= 5",
        "true",
    ),
    (
        Function::Compare(Relation::Greater),
        "Whether the first operand is greater.",
        "request.size > 100",
        "false",
    ),
    (
        Function::Compare(Relation::GreaterOrEqual),
        "Whether the first operand is greater or equal.",
        "request.size >= 5",
        "true",
    ),
    (Function::Size, "The length of a text in bytes.", "size(request.url_path)", "8"),
    (
        Function::Conditional,
        "The second operand if the first is true, else the third. Only that one is evaluated.",
        r#"conditional(request.size > 100, "large", "small")"#,
        r#""small""#,
    ),
    (
        Function::ConditionalString,
        "The second operand if the first is true, else the third. All are evaluated.",
        r#"conditionalString(request.method == "GET", "read", "write")"#,
        r#""read""#,
    ),
    (
        Function::EmptyStringMap,
        "A map without entries.",
        r#"(request.query_params | emptyStringMap())["key"] | "none""#,
        r#""none""#,
    ),
    (Function::Ip, "The IP address that a text denotes.", r#"source.ip == ip("10.0.0.1")"#, "true"),
    (
        Function::Timestamp,
        "The time that a text denotes, as in RFC 3339.",
        r#"request.time < timestamp("2030-01-01T00:00:00Z")"#,
        "true",
    ),
    (
        Function::DnsName,
        "The domain name that a text denotes. Names compare without regard to case and to a final dot.",
        r#"dnsName(request.host) == dnsName("Example.com")"#,
        "true",
    ),
    (
        Function::Email,
        "The email address that a text denotes. The domain compares as a domain name.",
        r#"email("user@Example.com") == email("user@example.com")"#,
        "true",
    ),
    (
        Function::Uri,
        "The URI that a text denotes.",
        r#"uri("http://example.com/x") == uri("http://example.com/x")"#,
        "true",
    ),
    (Function::ToLower, "A text in lower case.", r#"toLower("GET")"#, r#""get""#),
    (
        Function::Match,
        "Whether a text is equal to a pattern, which may have one * at its end (prefix) or at its start (suffix).",
        r#"match(request.url_path, "/admin/*")"#,
        "true",
    ),
    (
        Function::Matches,
        "Whether a regular expression (RE2), which is the receiver, matches anywhere in a text.",
        r#""^/(admin|secret)(/|$)".matches(request.url_path)"#,
        "true",
    ),
    (
        Function::StartsWith,
        "Whether the receiver begins with a text.",
        r#"request.url_path.startsWith("/admin")"#,
        "true",
    ),
    (
        Function::EndsWith,
        "Whether the receiver ends with a text.",
        r#"request.url_path.endsWith(".php")"#,
        "false",
    ),
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        attribute::{Bag, Reads, Vocabulary, parse_text},
        expression::{Evaluated, Expression},
    };

    #[test]
    fn every_example_has_the_stated_value() {
        let mut vocabulary = Vocabulary::new();
        vocabulary.declare_standard();
        let text = "request.url_path=/admin/x,request.method=GET,request.size=5,request.host=example.com,source.ip=10.0.0.1,\
                    request.time=2019-05-06T07:08:09Z,request.headers=user-agent=curl/8.5";
        let attributes = parse_text(text, &vocabulary).unwrap();
        let mut bag = Bag::new(Arc::new(vocabulary));
        for (name, value) in attributes {
            bag.insert(&name, value);
        }
        assert_eq!(functions().count(), NAMES.len(), "every function is documented");
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
