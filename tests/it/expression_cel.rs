//! Expressions in CEL and COMPAT, beyond the recorded cases.

use std::sync::Arc;

use mixer_adapter::value::{Value, ValueType};
use mixer_adapter_engine::{
    attribute::{Bag, Reads, StringMap, Vocabulary},
    expression::{CompileErrorKind, EvalErrorKind, Expression, Language},
};

fn vocabulary() -> Arc<Vocabulary> {
    let mut vocabulary = Vocabulary::new();
    for (name, value_type) in [
        ("request.path", ValueType::String),
        ("request.headers", ValueType::StringMap),
        ("request.time", ValueType::Timestamp),
        ("package", ValueType::String),
        ("size", ValueType::Int64),
    ] {
        vocabulary.declare(name, value_type).unwrap();
    }
    Arc::new(vocabulary)
}

fn bag() -> Bag {
    let mut bag = Bag::new(vocabulary());
    bag.insert("request.path", "/a/b");
    bag.insert("request.headers", [("x", "1"), ("y", "2")].into_iter().collect::<StringMap>());
    bag.insert("package", "p");
    bag.insert("size", 3);
    bag
}

fn cel(text: &str) -> Expression {
    Expression::compile_in(Language::Cel, text, &vocabulary())
        .unwrap_or_else(|error| panic!("{}", error.render(text)))
}

fn compile_error(text: &str) -> (CompileErrorKind, String) {
    let error = Expression::compile_in(Language::Cel, text, &vocabulary()).unwrap_err();
    (error.kind(), error.render(text))
}

#[test]
fn standard_functions_and_macros_work_on_attributes() {
    for (text, value) in [
        ("[1, 2, 3].map(x, x * size).exists(x, x == 9)", Value::Bool(true)),
        ("['/a', '/b'].filter(p, request.path.startsWith(p))[0]", Value::from("/a")),
        ("'x' in request.headers && !('z' in request.headers)", Value::Bool(true)),
        ("request.headers.x + request.headers['y']", Value::from("12")),
        ("has(request.headers.z) ? 'yes' : 'no'", Value::from("no")),
        ("pick(request.headers['z'], request.headers['y'], 'none')", Value::from("2")),
        ("conditional(has(request.time), 1, 2)", Value::Int64(2)),
        ("request.path.matches('^/[a-z]+/b$')", Value::Bool(true)),
        ("package + '!'", Value::from("p!")),
        ("type(size) == int", Value::Bool(true)),
        ("{'a': 1}.exists(k, k == 'a') && {'a': 'b'}.all(k, k != 'b')", Value::Bool(true)),
        ("size({'a': 'b'}) == 1 && {'a': 'b'} == {'a': 'b'}", Value::Bool(true)),
        ("{'a': 'b'}", Value::StringMap([("a", "b")].into_iter().collect())),
        (
            "timestamp('2020-01-01T00:00:00Z') + duration('1h') > timestamp('2020-01-01T00:30:00Z')",
            Value::Bool(true),
        ),
        ("request.time == timestamp('1970-01-01T00:00:00Z')", Value::Bool(true)),
    ] {
        let expression = cel(text);
        let value_of = expression.eval(&bag(), &mut Reads::default()).map(Value::from);
        assert_eq!(value_of, Ok(value.clone()), "{text}");
        assert_eq!(expression.value_type(), value.value_type(), "{text}");
    }
}

#[test]
fn expressions_that_can_never_be_evaluated_do_not_compile() {
    for (text, kind, line) in [
        ("request.paht == ''", CompileErrorKind::UnknownAttribute, "unknown attribute `request.paht`"),
        ("nothing(1)", CompileErrorKind::UnknownFunction, "unknown function `nothing`"),
        (
            "request.path + 1",
            CompileErrorKind::ArgumentType,
            "`+` does not accept arguments of type STRING, INT64",
        ),
        ("request.headers.all(k, true)", CompileErrorKind::ArgumentType, "cannot iterate over"),
        ("request.path.x", CompileErrorKind::ArgumentType, "STRING has no field `x`"),
        ("request.path ==", CompileErrorKind::Cel, " --> 1:"),
    ] {
        let (actual, rendered) = compile_error(text);
        assert!(actual == kind && rendered.contains(line), "{text}: {actual:?} {rendered}");
    }
}

#[test]
fn all_errors_of_an_expression_are_found_each_once() {
    let errors = |language: Language, text: &str| {
        let error = Expression::compile_in(language, text, &vocabulary()).unwrap_err();
        error.all().map(ToString::to_string).collect::<Vec<_>>()
    };
    for language in [Language::Cel, Language::Compat] {
        let found =
            errors(language, "request.paht == \"/x\" && sorce.name == \"y\" && request.paht == \"/z\"");
        let paht = found.iter().filter(|error| **error == "unknown attribute `request.paht`").count();
        let sorce = found.iter().any(|error| error.starts_with("unknown attribute `sorce"));
        assert!(sorce && paht >= 1 && found.len() == paht + 1, "{language:?}: {found:?}");
    }
    let found = errors(Language::Cel, "request.paht.startsWith(\"/x\") || nothing(size) > 1");
    assert_eq!(found, ["unknown attribute `request.paht`", "unknown function `nothing`"]);
}

#[test]
fn a_value_of_the_wrong_type_is_an_error_even_where_cel_would_ignore_it() {
    let mut bag = bag();
    bag.insert("request.headers", "text");
    let expression = cel("true || 'x' in request.headers");
    assert_eq!(expression.eval_bool(&bag, &mut Reads::default()), Ok(true), "the attribute is not read");
    let expression = cel("'x' in request.headers || true");
    let error = expression.eval_bool(&bag, &mut Reads::default()).unwrap_err();
    let (name, declared) = ("request.headers".into(), ValueType::StringMap);
    assert_eq!(error.kind(), &EvalErrorKind::WrongType { name, declared, actual: "STRING" });
}

/// As in cel-go (common/types/timestamp.go).
#[test]
fn years_begin_at_1() {
    let before = |text: &str| cel(text).eval(&bag(), &mut Reads::default()).is_err();
    assert!(before("timestamp('0000-12-31T23:59:59Z') < request.time"));
    assert!(!before("timestamp('0001-01-01T00:00:00Z') < request.time"));
}

#[test]
fn a_value_of_a_type_that_attributes_do_not_have_is_an_error() {
    let expression = cel("[1, 2]");
    assert_eq!(expression.value_type(), ValueType::Unspecified);
    let error = expression.eval(&bag(), &mut Reads::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the value is of type list, not of an attribute type known at compile time"
    );
}

#[test]
fn the_steps_of_macros_are_bounded() {
    let list = format!("[{}]", vec!["0"; 100].join(","));
    let nested = |levels: usize| format!("{list}.all(x, ").repeat(levels) + "size == 3" + &")".repeat(levels);
    assert_eq!(cel(&nested(2)).eval_bool(&bag(), &mut Reads::default()), Ok(true));
    for text in
        [nested(3), nested(5), format!("{list}.map(x, {list}).map(x, x.map(y, {list})).exists(x, false)")]
    {
        let error = cel(&text).eval_bool(&bag(), &mut Reads::default()).unwrap_err();
        assert_eq!(error.to_string(), "macros: the macros of this expression take more than 100000 steps");
    }
}

#[test]
fn nesting_and_expansion_are_bounded() {
    let texts = [
        "(".repeat(100_000),
        "[".repeat(5_000) + &"]".repeat(5_000),
        "a?b:".repeat(5_000) + "c",
        "size".to_owned() + &"+size".repeat(5_000),
        "size".to_owned() + &"+size".repeat(1_000),
        "size".to_owned() + &".b()".repeat(600),
    ];
    for text in texts {
        let error = Expression::compile_in(Language::Cel, &text, &vocabulary()).unwrap_err();
        let expected = [CompileErrorKind::TooLarge, CompileErrorKind::Cel, CompileErrorKind::UnknownFunction];
        assert!(expected.contains(&error.kind()), "{:?} {}", error.kind(), &text[..20]);
    }
    let mut key = "request.headers['x']".to_owned();
    for _ in 0..60 {
        key = format!("request.headers[pick({key}, 'x')]");
    }
    let error =
        Expression::compile_in(Language::Cel, &format!("pick({key}, 'x')"), &vocabulary()).unwrap_err();
    assert!([CompileErrorKind::TooLarge, CompileErrorKind::Cel].contains(&error.kind()));
    for language in [Language::Cel, Language::Compat] {
        let chain = vec!["size == 3"; 600].join(" || ");
        let expression = Expression::compile_in(language, &chain, &vocabulary()).unwrap();
        assert_eq!(expression.eval_bool(&bag(), &mut Reads::default()), Ok(true));
        let deep = "reverse(".repeat(90) + "request.path" + &")".repeat(90);
        let expression = Expression::compile_in(language, &deep, &vocabulary()).unwrap();
        let value = expression.eval(&bag(), &mut Reads::default()).map(Value::from);
        assert_eq!(value, Ok(Value::from("/a/b")));
    }
}

#[test]
fn an_annotation_other_than_cel_and_compat_is_mixer_s_own_language() {
    assert_eq!(Language::from_annotation("CEL"), Language::Cel);
    assert_eq!(Language::from_annotation("COMPAT"), Language::Compat);
    assert_eq!(Language::from_annotation("cel"), Language::Cexl);
}
