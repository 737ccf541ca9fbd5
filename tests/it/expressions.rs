//! Compile and evaluation errors of the expression language, and its limits.

use std::sync::Arc;

use mixer_adapter::value::{Value, ValueType};
use mixer_adapter_engine::{
    attribute::{AttributeValue, Bag, Reads, StringMap, Vocabulary},
    expression::{CompileErrorKind, EvalErrorKind, Evaluated, Expression, Span},
};

fn vocabulary() -> Arc<Vocabulary> {
    let mut vocabulary = Vocabulary::new();
    for (name, value_type) in [
        ("request.path", ValueType::String),
        ("request.method", ValueType::String),
        ("request.size", ValueType::Int64),
        ("request.time", ValueType::Timestamp),
        ("request.headers", ValueType::StringMap),
        ("source.ip", ValueType::IpAddress),
        ("ab", ValueType::Bool),
    ] {
        vocabulary.declare(name, value_type).unwrap();
    }
    Arc::new(vocabulary)
}

fn compile(text: &str) -> Expression {
    Expression::compile(text, &vocabulary()).unwrap_or_else(|error| panic!("{}", error.render(text)))
}

#[test]
fn an_unknown_attribute_is_marked_and_a_similar_one_suggested() {
    let text = "ab &&\n  request.paht == \"/x\"";
    let error = Expression::compile(text, &vocabulary()).unwrap_err();
    assert_eq!(error.to_string(), "unknown attribute `request.paht`");
    let lines = [
        "error: unknown attribute `request.paht`",
        " --> 2:3",
        "  |",
        "2 |   request.paht == \"/x\"",
        "  |   ^^^^^^^^^^^^",
        "  = help: did you mean `request.path`?",
        "",
    ];
    assert_eq!(error.render(text), lines.join("\n"));
}

#[test]
fn compile_errors_mark_only_the_faulty_part() {
    for (text, kind, marked) in [
        ("request.size == \"x\"", CompileErrorKind::ArgumentType, "\"x\""),
        ("ab || request.size", CompileErrorKind::ArgumentType, "request.size"),
        ("request.path | \"1s\"", CompileErrorKind::ArgumentType, "\"1s\""),
        ("request.headers[request.size]", CompileErrorKind::ArgumentType, "request.size"),
        ("ab < ab", CompileErrorKind::UnsupportedOperandType, "<"),
        ("(ab) + ab", CompileErrorKind::UnsupportedOperandType, "(ab) + ab"),
        ("!ab", CompileErrorKind::UnknownFunction, "!"),
        ("request.path.size()", CompileErrorKind::MethodKind, "size"),
        ("match(request.path)", CompileErrorKind::Arity, "match(request.path)"),
        ("request.type == 1", CompileErrorKind::Parse, "type"),
        ("[1, 2]", CompileErrorKind::Parse, "["),
        ("[1]", CompileErrorKind::Parse, "["),
        ("[]string{\"a\"}", CompileErrorKind::UnsupportedSyntax, "["),
        ("[2]int{1, 2}", CompileErrorKind::UnsupportedSyntax, "["),
        ("request.path == \"a\\q\"", CompileErrorKind::Parse, "\\q"),
        ("request.size == 99999999999999999999", CompileErrorKind::Literal, "99999999999999999999"),
        (
            "request.headers[\"a\"].matches(\"b\")",
            CompileErrorKind::UnsupportedSyntax,
            "request.headers[\"a\"].matches",
        ),
    ] {
        let error = Expression::compile(text, &vocabulary()).unwrap_err();
        let span = error.span();
        assert_eq!((error.kind(), &text[span.start as usize..span.end as usize]), (kind, marked), "{text}");
    }
}

#[test]
fn a_missing_attribute_is_marked_in_the_source() {
    let text = "ab || request.path == \"/x\"";
    let mut bag = Bag::new(vocabulary());
    bag.insert("ab", false);
    let expression = compile(text);
    let error = expression.eval_bool(&bag, &mut Reads::default()).unwrap_err();
    assert_eq!(error.to_string(), "attribute `request.path` is missing");
    assert!(error.render(text).contains("\n  |       ^^^^^^^^^^^^\n"), "{}", error.render(text));
}

#[test]
fn a_wrong_type_in_a_request_is_an_error_that_names_both_types() {
    let mut bag = Bag::new(vocabulary());
    for name in ["source.ip", "request.time", "request.headers", "request.size"] {
        bag.insert(name, "text");
    }
    for (text, name, declared) in [
        ("source.ip", "source.ip", ValueType::IpAddress),
        ("source.ip | ip(\"1.2.3.4\")", "source.ip", ValueType::IpAddress),
        ("request.time < timestamp(\"2020-01-01T00:00:00Z\")", "request.time", ValueType::Timestamp),
        ("request.headers[\"a\"] | \"b\"", "request.headers", ValueType::StringMap),
        ("request.size + 1", "request.size", ValueType::Int64),
    ] {
        let expression = compile(text);
        let error = expression.eval(&bag, &mut Reads::default()).unwrap_err();
        let kind = EvalErrorKind::WrongType { name: name.into(), declared, actual: "STRING" };
        assert_eq!(error.kind(), &kind, "{text}");
        let message = format!("attribute `{name}` is declared as {declared}, but the request has STRING");
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn expressions_beyond_the_limits_of_mixer_are_evaluated() {
    let mut bag = Bag::new(vocabulary());
    bag.insert("request.path", "/X");
    bag.insert("request.size", 1);
    let value = |text: &str| -> Value {
        let expression = compile(text);
        let value = expression.eval(&bag, &mut Reads::default()).unwrap();
        value.into()
    };
    let condition = vec!["request.path == \"/y\""; 1000].join(" || ") + " || request.path == \"/X\"";
    assert_eq!(value(&condition), Value::Bool(true));
    assert_eq!(value(&vec!["\"a\""; 70].join(" + ")), Value::from("a".repeat(70)));
    assert_eq!(value(&("request.size + (".repeat(41) + "1" + &")".repeat(41))), Value::Int64(42));
    assert_eq!(value(&("toLower(".repeat(70) + "request.path" + &")".repeat(70))), Value::from("/x"));
}

/// Mixer 1.3.8 answers the opposite of the first two, cannot evaluate the comparisons of names and URIs, and says that the times differ.
#[test]
fn what_the_original_computes_wrong_is_right_here() {
    let mut bag = Bag::new(vocabulary());
    bag.insert("request.size", 5);
    for (text, value) in [
        (r#"match(conditionalString(true || false, "x", "y"), "z")"#, false),
        ("0 != 42 + request.size | 0", false),
        (r#"dnsName("a_b.com") == dnsName("a_b.com")"#, true),
        (r#"dnsName("a_b.com") != dnsName("b.com")"#, true),
        (r#"uri("http://[::1]/") == uri("http://[::1]/")"#, true),
        (r#"uri("http://[::1]/") == uri("http://[::2]/")"#, false),
        (r#"timestamp("2019-05-06T09:08:09+02:00") >= timestamp("2019-05-06T09:08:09+02:00")"#, true),
    ] {
        assert_eq!(compile(text).eval_bool(&bag, &mut Reads::default()), Ok(value), "{text}");
    }
}

/// The process of Mixer 1.3.8 ends.
#[test]
fn an_entry_whose_key_is_missing_falls_back_within_an_argument() {
    let expression = compile(r#""b".matches(request.headers[request.method] | request.path | "x")"#);
    let mut bag = Bag::new(vocabulary());
    let headers = StringMap::from_iter([(Arc::from("GET"), Arc::from("b"))]);
    bag.insert("request.headers", headers);
    assert_eq!(expression.eval_bool(&bag, &mut Reads::default()), Ok(false));
    bag.insert("request.path", "/b");
    assert_eq!(expression.eval_bool(&bag, &mut Reads::default()), Ok(true));
}

#[test]
fn nesting_is_bounded_and_chains_are_not_nested() {
    let nested = |levels: usize| "(".repeat(levels) + "ab" + &")".repeat(levels);
    let calls = |levels: usize| "toLower(".repeat(levels) + "\"x\"" + &")".repeat(levels);
    let comparisons = |levels: usize| "ab".to_owned() + &" == ab".repeat(levels);
    let methods = |levels: usize| "request.path".to_owned() + &".startsWith(\"a\")".repeat(levels);
    let operators = |levels: usize| "!".repeat(levels) + "ab";
    compile(&nested(200));
    compile(&calls(199));
    compile(&comparisons(199));
    let deep = [nested(100_000), calls(100_000), comparisons(100_000), methods(100_000), operators(100_000)];
    for text in deep.into_iter().chain([nested(201), calls(200), comparisons(200)]) {
        let error = Expression::compile(&text, &vocabulary()).unwrap_err();
        let expected =
            if text.contains("starts") { CompileErrorKind::ReceiverType } else { CompileErrorKind::TooLarge };
        let kind = error.kind();
        assert!(kind == CompileErrorKind::TooLarge || kind == expected, "{kind:?} {}", &text[..20]);
    }
    compile(&vec!["ab"; 100_000].join("||"));
    let huge = vec!["ab"; 300_000].join("||");
    assert_eq!(Expression::compile(&huge, &vocabulary()).unwrap_err().kind(), CompileErrorKind::TooLarge);
}

#[test]
fn the_value_of_an_operator_on_the_left_of_a_fallback_is_ignored() {
    let mut bag = Bag::new(vocabulary());
    bag.insert("ab", true);
    bag.insert("request.path", "/x");
    for (text, value) in [
        ("(request.path == \"/x\") | false", Value::Bool(false)),
        ("(ab && ab) | false", Value::Bool(false)),
        ("size(request.path) | 7", Value::Int64(7)),
        ("toLower(request.path) | \"y\"", Value::from("/x")),
        ("conditional(ab, 1, 2) | 7", Value::Int64(1)),
        ("request.path.startsWith(\"/\") | false", Value::Bool(true)),
    ] {
        let expression = compile(text);
        assert_eq!(Value::from(expression.eval(&bag, &mut Reads::default()).unwrap()), value, "{text}");
    }
}

#[test]
fn with_surplus_operands_a_function_uses_the_last_and_an_operator_the_first() {
    let mut bag = Bag::new(vocabulary());
    bag.insert("ab", true);
    bag.insert("request.path", "a");
    for (text, value) in [
        ("match(request.path, \"x\", \"x*\")", true),
        ("request.path.startsWith(\"xy\", \"x\")", true),
        ("EQ(request.path, \"a\", \"b\")", true),
        ("LAND(ab, ab, false)", false),
        ("LOR(false, false, ab)", false),
    ] {
        let expression = compile(text);
        assert_eq!(expression.eval_bool(&bag, &mut Reads::default()), Ok(value), "{text}");
    }
    let error = Expression::compile("match(request.path, \"x\", 5)", &vocabulary()).unwrap_err();
    assert_eq!(error.kind(), CompileErrorKind::ArgumentType);
}

#[test]
fn a_condition_must_be_bool() {
    let expression = compile("request.size | 1");
    assert_eq!(expression.value_type(), ValueType::Int64);
    let error = expression.eval_bool(&Bag::new(vocabulary()), &mut Reads::default()).unwrap_err();
    assert_eq!(error.kind(), &EvalErrorKind::NotBool { actual: ValueType::Int64 });
}

#[test]
fn outputs_extend_the_vocabulary_of_a_request() {
    let base = vocabulary();
    let mut extended = Vocabulary::extending(Arc::clone(&base));
    extended.declare("output.user", ValueType::String).unwrap();
    let extended = Arc::new(extended);
    let expression = Expression::compile("request.path + \"#\" + output.user", &extended).unwrap();
    let mut bag = Bag::new(Arc::clone(&base));
    bag.insert("request.path", "/x");
    let mut outputs = Bag::new(extended);
    outputs.insert("output.user", "me");
    let mut reads = Reads::default();
    assert_eq!(expression.eval(bag.with(&outputs), &mut reads), Ok(Evaluated::String("/x#me".into())));
    let referenced: Vec<_> = reads.referenced(&base).map(|reference| reference.name).collect();
    assert_eq!(referenced, ["request.path"], "outputs are not attributes of the request");
    assert!(expression.eval(&bag, &mut reads).is_err());
}

#[test]
fn values_convert_to_attribute_values() {
    let bag = Bag::new(vocabulary());
    for (text, attribute) in [
        ("uri(\"a\")", AttributeValue::from("a")),
        ("\"1s\"", AttributeValue::Duration(1_000_000_000)),
        ("ip(\"::1\")", AttributeValue::from("::1".parse::<std::net::IpAddr>().unwrap())),
    ] {
        let expression = compile(text);
        let value = expression.eval(&bag, &mut Reads::default()).unwrap();
        assert_eq!(AttributeValue::from(value.clone()), attribute);
        assert_eq!(AttributeValue::from_value(&value.into()), Some(attribute));
    }
}

#[test]
fn all_errors_of_an_expression_are_found_at_once() {
    let text = "request.paht == \"/x\" && request.size == \"5\" && match(nothing)";
    let error = Expression::compile(text, &vocabulary()).unwrap_err();
    let marked = |span: Span| &text[span.start as usize..span.end as usize];
    let found: Vec<_> = error.all().map(|error| (error.kind(), marked(error.span()))).collect();
    let expected = [
        (CompileErrorKind::UnknownAttribute, "request.paht"),
        (CompileErrorKind::ArgumentType, "\"5\""),
        (CompileErrorKind::Arity, "match(nothing)"),
        (CompileErrorKind::UnknownAttribute, "nothing"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn constants_that_cannot_be_evaluated_are_found_without_a_request() {
    let invalid = |text: &str| {
        let expression = compile(text);
        expression.invalid_constants().iter().map(|error| error.kind().as_str()).collect::<Vec<_>>()
    };
    assert_eq!(
        invalid("source.ip == ip(\"10.0.0\") && request.time < timestamp(\"today\")"),
        ["value_conversion_error", "value_conversion_error",]
    );
    assert_eq!(invalid("\"(\".matches(request.path)"), ["regex_error"]);
    assert_eq!(invalid("source.ip == ip(\"10.0.0.1\") && \"^/\".matches(request.path)"), [""; 0]);
    assert_eq!(invalid("request.path.matches(request.path)"), [""; 0], "not a constant");
}
