//! No expression and no request causes a panic.

use mixer_adapter::value::ValueType;
use mixer_adapter_engine::expression::Language;
use proptest::prelude::*;

#[path = "expression_fuzzing.rs"]
mod fuzzing;

/// Tokens of which expressions are generated.
const TOKENS: [&str; 85] = [
    "as",
    "bs",
    "ai",
    "ad",
    "ab",
    "at",
    "adur",
    "aip",
    "ar",
    "auri",
    "amail",
    "adns",
    "a.b",
    "x",
    "true",
    "false",
    "0",
    "007",
    "0x1F",
    "1.5",
    "1e3",
    ".5",
    "2i",
    "\"a\"",
    "\"\"",
    "\"0\"",
    "\"1s\"",
    "\"a*\"",
    "'x'",
    "`raw`",
    "\"\\u00e9\"",
    "\"2020-01-01T00:00:00Z\"",
    "\"1.2.3.4\"",
    "(",
    ")",
    "[",
    "]",
    "{",
    ",",
    ".",
    "\n",
    " ",
    "// c",
    "/* c */",
    "|",
    "||",
    "&&",
    "==",
    "!=",
    "<",
    ">=",
    "+",
    "-",
    "!",
    "match(",
    "ip(",
    "timestamp(",
    "dnsName(",
    "email(",
    "uri(",
    "conditional(",
    ".matches(",
    ".startsWith(",
    "é",
    "?",
    ":",
    "{",
    "}",
    " in ",
    "has(a.b)",
    "pick(",
    "[1, 2]",
    ".all(x, ",
    ".map(y, ",
    "size(",
    "type(",
    "null",
    "1u",
    "b\"x\"",
    ".exists(",
    "json(",
    "query(",
    "queryAll(",
    "segment(",
    "toInt(",
];

const LANGUAGES: [Language; 3] = [Language::Cexl, Language::Cel, Language::Compat];

fn any_language() -> impl Strategy<Value = Language> {
    proptest::sample::select(LANGUAGES.to_vec())
}

fn any_tokens() -> impl Strategy<Value = String> {
    let token = proptest::sample::select(TOKENS.to_vec());
    proptest::collection::vec(token, 0..24).prop_map(|tokens| tokens.concat())
}

fn attribute(value_type: ValueType) -> String {
    let (name, _) = fuzzing::ATTRIBUTES.iter().find(|(_, known)| *known == value_type).unwrap();
    format!("a{name}")
}

/// Generates an expression of a type with at most `depth` levels of nesting.
fn well_formed(value_type: ValueType, depth: u32) -> BoxedStrategy<String> {
    use ValueType::*;
    let literal = match value_type {
        String => r#""abc""#,
        Int64 => "42",
        Double => "1.5",
        Bool => "true",
        Duration => r#""1s""#,
        Timestamp => r#"timestamp("2020-01-01T00:00:00+01:00")"#,
        IpAddress => r#"ip("1.2.3.4")"#,
        Uri => r#"uri("http://a.b")"#,
        EmailAddress => r#"email("a@b.c")"#,
        DnsName => r#"dnsName("a.b")"#,
        _ => "emptyStringMap()",
    };
    let leaf = prop_oneof![Just(literal.to_owned()), Just(attribute(value_type))];
    if depth == 0 {
        return leaf.boxed();
    }
    let part = move |value_type| well_formed(value_type, depth - 1);
    let choice = (part(value_type), part(value_type)).prop_map(|(a, b)| format!("({a} | {b})"));
    let branch = (part(Bool), part(value_type), part(value_type))
        .prop_map(|(c, a, b)| format!("conditional({c}, {a}, {b})"));
    let special = match value_type {
        String => prop_oneof![
            (part(StringMap), part(String)).prop_map(|(m, k)| format!("({m}[{k}])")),
            (part(String), part(String)).prop_map(|(a, b)| format!("({a} + {b})")),
            part(String).prop_map(|a| format!("toLower({a})")),
            (part(String), part(String)).prop_map(|(a, b)| format!("(json({a}, {b}) | {b})")),
            (part(String), part(String)).prop_map(|(a, b)| format!("(query({a}, {b}) | queryAll({b}, {a}))")),
            (part(String), part(Int64)).prop_map(|(a, i)| format!("segment({a}, {i})")),
        ]
        .boxed(),
        Int64 => prop_oneof![
            (part(Int64), part(Int64)).prop_map(|(a, b)| format!("({a} + {b})")),
            part(String).prop_map(|a| format!("size({a})")),
            part(String).prop_map(|a| format!("(toInt({a}) | 1)")),
        ]
        .boxed(),
        Double => (part(Double), part(Double)).prop_map(|(a, b)| format!("({a} + {b})")).boxed(),
        Bool => prop_oneof![
            (part(Bool), part(Bool)).prop_map(|(a, b)| format!("({a} && {b} || {a})")),
            (part(String), part(String)).prop_map(|(a, b)| format!("match({a}, {b})")),
            (part(String), part(String)).prop_map(|(a, b)| format!("({a}).matches({b})")),
            (part(String), part(String)).prop_map(|(a, b)| format!("({a}).endsWith({b})")),
            comparison(depth - 1, "==", vec![String, Int64, Double, Bool, Timestamp, IpAddress]),
            comparison(depth - 1, "!=", vec![Uri, EmailAddress, DnsName]),
            comparison(depth - 1, "<=", vec![String, Int64, Double, Timestamp, Uri]),
        ]
        .boxed(),
        Timestamp => part(String).prop_map(|a| format!("timestamp({a})")).boxed(),
        IpAddress => part(String).prop_map(|a| format!("ip({a})")).boxed(),
        Uri => part(String).prop_map(|a| format!("uri({a})")).boxed(),
        EmailAddress => part(String).prop_map(|a| format!("email({a})")).boxed(),
        DnsName => part(String).prop_map(|a| format!("dnsName({a})")).boxed(),
        _ => Just(literal.to_owned()).boxed(),
    };
    prop_oneof![leaf, choice, branch, special].boxed()
}

fn comparison(depth: u32, operator: &'static str, types: Vec<ValueType>) -> BoxedStrategy<String> {
    proptest::sample::select(types)
        .prop_flat_map(move |value_type| (well_formed(value_type, depth), well_formed(value_type, depth)))
        .prop_map(move |(a, b)| format!("({a} {operator} {b})"))
        .boxed()
}

fn any_type() -> impl Strategy<Value = ValueType> {
    proptest::sample::select(fuzzing::ATTRIBUTES.map(|(_, value_type)| value_type).to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_compiles_or_is_a_compile_error(text in "\\PC{0,40}", language in any_language()) {
        fuzzing::run(language, &text);
    }

    #[test]
    fn any_tokens_compile_or_are_a_compile_error(text in any_tokens(), language in any_language()) {
        fuzzing::run(language, &text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_well_formed_expression_compiles_and_has_a_value_or_an_error_for_any_request(
        text in any_type().prop_flat_map(|value_type| well_formed(value_type, 3)),
    ) {
        prop_assert!(fuzzing::run(Language::Cexl, &text), "{text} does not compile");
        fuzzing::run(Language::Compat, &text);
        fuzzing::run(Language::Cel, &text);
    }
}

#[test]
fn the_corpus_of_past_failures_passes() {
    for text in include_str!("../data/expressions/corpus.txt").split("\n---\n") {
        for language in LANGUAGES {
            fuzzing::run(language, text);
        }
    }
}
