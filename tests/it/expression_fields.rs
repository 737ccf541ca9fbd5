//! Fields of the body, the query and the path of a request, in each language of expressions.

use std::sync::Arc;

use mixer_adapter::value::{Value, ValueType};
use mixer_adapter_engine::{
    attribute::{Bag, Reads, Vocabulary},
    expression::{Expression, Language},
};

const BODY: &str =
    r#"{"method": "tools/call", "params": {"name": "search", "arguments": [1, true]}, "max_tokens": 4096}"#;

/// A request with a body and whether that is cut off.
fn request(body: Option<&str>, truncated: Option<bool>) -> Bag {
    let mut vocabulary = Vocabulary::new();
    for (name, value_type) in [
        ("request.path", ValueType::String),
        ("request.url_path", ValueType::String),
        ("request.body", ValueType::String),
        ("request.body_truncated", ValueType::Bool),
        ("key", ValueType::String),
    ] {
        vocabulary.declare(name, value_type).unwrap();
    }
    let mut bag = Bag::new(Arc::new(vocabulary));
    bag.insert("request.path", "/v1/users?page=%32&tag=a&tag=b");
    bag.insert("request.url_path", "/v1/users");
    body.into_iter().for_each(|body| bag.insert("request.body", body));
    truncated.into_iter().for_each(|truncated| bag.insert("request.body_truncated", truncated));
    bag
}

fn eval(language: Language, text: &str, bag: &Bag) -> Result<Value, String> {
    let expression = Expression::compile_in(language, text, bag.vocabulary())
        .unwrap_or_else(|error| panic!("{language:?}: {}", error.render(text)));
    expression.eval(bag, &mut Reads::default()).map(Value::from).map_err(|error| error.to_string())
}

/// Evaluates an expression in Mixer's own language, and as COMPAT and CEL, in which `|` is `pick`.
fn eval_in_each(text: &str, bag: &Bag) -> Result<Value, String> {
    let value = eval(Language::Cexl, text, bag);
    #[cfg(feature = "cel")]
    {
        assert_eq!(eval(Language::Compat, text, bag), value, "{text}");
        let picked = match text.split_once(" | ") {
            Some((left, right)) => format!("pick({left}, {right})"),
            None => text.to_owned(),
        };
        assert_eq!(eval(Language::Cel, &picked, bag), value, "{picked}");
    }
    value
}

#[test]
fn fields_have_values_in_each_language() {
    let bag = request(Some(BODY), Some(false));
    for (text, value) in [
        (r#"json(request.body, "params.name")"#, Value::from("search")),
        (r#"json(request.body, "params.arguments")"#, Value::from("[1,true]")),
        (r#"json(request.body, "params.arguments.1")"#, Value::from("true")),
        (r#"json(request.body, "/max_tokens") | "none""#, Value::from("4096")),
        (r#"json(request.body, "params.none") | "none""#, Value::from("none")),
        (r#"json(json(request.body, "params"), "name")"#, Value::from("search")),
        (r#"toInt(json(request.body, "max_tokens"))"#, Value::Int64(4096)),
        (r#"toInt(json(request.body, "max_tokens")) | 1"#, Value::Int64(4096)),
        (r#"toInt(json(request.body, "none")) | 1"#, Value::Int64(1)),
        (r#"query(request.path, "page")"#, Value::from("2")),
        (r#"query(request.path, "none") | "1""#, Value::from("1")),
        (r#"queryAll(request.path, "tag")"#, Value::from("a\nb")),
        (r#"queryAll(request.path, "none") | """#, Value::from("")),
        ("segment(request.url_path, 2)", Value::from("users")),
        (r#"segment(request.path, 3) | "all""#, Value::from("all")),
    ] {
        assert_eq!(eval_in_each(text, &bag), Ok(value), "{text}");
    }
}

/// A rule that denies by `==` does not apply to such a request.
#[test]
fn the_values_of_a_parameter_that_is_given_twice_are_lines_and_equal_neither() {
    let bag = request(None, None);
    for tag in ["a", "b"] {
        let equal = format!(r#"queryAll(request.path, "tag") == "{tag}""#);
        assert_eq!(eval_in_each(&equal, &bag), Ok(Value::Bool(false)), "{equal}");
        let matches = format!(r#""(?m)^{tag}$".matches(queryAll(request.path, "tag"))"#);
        assert_eq!(eval(Language::Cexl, &matches, &bag), Ok(Value::Bool(true)), "{matches}");
    }
}

/// So a rule that denies by the value does not pass such a request, whatever its fallback.
#[test]
fn a_field_that_cannot_be_read_is_an_error_in_spite_of_a_fallback() {
    let json = r#"json(request.body, "params.name") | "none""#;
    for (body, truncated, why) in [
        (Some(BODY), Some(true), "the body of the request is cut off"),
        (None, Some(true), "the body of the request is cut off"),
        (None, Some(false), "the body of the request is not UTF-8"),
        (
            Some("{\"params\""),
            Some(false),
            "the text is not JSON: EOF while parsing an object at line 1 column 9",
        ),
        (
            Some(r#"{"params": {"name": "a", "name": "b"}}"#),
            Some(false),
            "the text has the key more than once or in another case, which servers read differently",
        ),
    ] {
        let error = Err(format!("`json` has no value: {why}"));
        assert_eq!(eval_in_each(json, &request(body, truncated)), error, "{body:?}");
    }
    let bag = request(None, None);
    for (text, error) in [
        (
            r#"query(request.path, "tag") | "none""#,
            "`query` has no value: the query has several values for the parameter, of which servers choose different ones",
        ),
        (
            r#"segment("/a/%2e%2e/b", 1) | "none""#,
            "`segment` has no value: the path has a segment `.` or `..`, which servers resolve differently",
        ),
    ] {
        assert_eq!(eval_in_each(text, &bag), Err(error.to_owned()), "{text}");
    }
    // The fallback is not that of a body that is there.
    let with_default = r#"json(request.body | "{}", "a") | "none""#;
    let unreadable = request(None, Some(false));
    let error = Err("`json` has no value: the body of the request is not UTF-8".to_owned());
    assert_eq!(eval(Language::Cexl, with_default, &unreadable), error);
}

#[test]
fn a_field_that_is_absent_is_an_error_without_a_fallback() {
    let bag = request(Some(BODY), Some(false));
    for (text, function) in [
        (r#"json(request.body, "none")"#, "json"),
        (r#"toInt(json(request.body, "none"))"#, "json"),
        (r#"query(request.path, "none")"#, "query"),
        (r#"queryAll(request.path, "none")"#, "queryAll"),
        ("segment(request.url_path, 3)", "segment"),
    ] {
        assert_eq!(
            eval_in_each(text, &bag),
            Err(format!("`{function}` has no value: it is absent")),
            "{text}"
        );
    }
    let empty = request(None, None);
    let missing = Err("attribute `request.body` is missing".to_owned());
    assert_eq!(eval(Language::Cexl, r#"json(request.body, "a")"#, &empty), missing);
    assert_eq!(eval_in_each(r#"json(request.body, "a") | "none""#, &empty), Ok(Value::from("none")));
    assert_eq!(
        eval(Language::Cexl, r#"json(request.body, key) | "none""#, &bag),
        Ok(Value::from("none")),
        "an operand is absent"
    );
}

#[test]
fn a_field_of_the_body_depends_on_whether_that_is_complete() {
    let bag = request(Some(BODY), Some(false));
    let languages: &[Language] = if cfg!(feature = "cel") {
        &[Language::Cexl, Language::Cel, Language::Compat]
    } else {
        &[Language::Cexl]
    };
    for language in languages {
        let expression =
            Expression::compile_in(*language, r#"json(request.body, "method")"#, bag.vocabulary()).unwrap();
        let mut reads = Reads::default();
        expression.eval(&bag, &mut reads).unwrap();
        let read: Vec<_> = reads.all(bag.vocabulary()).map(|reference| reference.name).collect();
        assert_eq!(read, ["request.body", "request.body_truncated"], "{language:?}");
    }
}

#[test]
fn an_integer_that_a_text_does_not_denote_is_an_error() {
    for text in ["1.5", "x", "9223372036854775808"] {
        let bag = request(Some(&format!(r#"{{"max_tokens": "{text}"}}"#)), Some(false));
        let found = eval(Language::Cexl, r#"toInt(json(request.body, "max_tokens")) | 1"#, &bag).unwrap_err();
        assert!(found.starts_with(&format!("not a valid INT64: `{text}`: ")), "{found}");
    }
}
