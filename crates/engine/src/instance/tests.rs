#![allow(clippy::unwrap_used)]

use serde_json::{Value as Json, json};

use super::*;
use crate::attribute::{AttributeValue, Bag};
use mixer_adapter_core::framework::dynamic::DescriptorSet;
use mixer_adapter_templates::STANDARD;

/// An instance of one of the standard templates, with `s` declared as STRING, `i` as INT64 and `m` as STRING_MAP.
fn compile(source: TemplateSource, template: &str, params: Json) -> Result<(Instance, Bag), String> {
    let mut vocabulary = Vocabulary::new();
    vocabulary.declare("s", ValueType::String).unwrap();
    vocabulary.declare("i", ValueType::Int64).unwrap();
    vocabulary.declare("m", ValueType::StringMap).unwrap();
    let (_, descriptor) = STANDARD.iter().find(|(name, _)| *name == template).unwrap();
    let template = Arc::new(DynamicTemplate::new(&DescriptorSet::decode(*descriptor).unwrap()).unwrap());
    let Json::Object(params) = params else { panic!("params are an object") };
    let instance = Instance::compile("i".into(), source, template, params, &vocabulary, Language::Cexl)
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    let mut bag = Bag::new(Arc::new(vocabulary));
    bag.insert("s", "x");
    bag.insert("i", 7);
    let map = [("k", "v")].map(|(key, value)| (Arc::from(key), Arc::from(value)));
    bag.insert("m", AttributeValue::StringMap(map.into_iter().collect()));
    Ok((instance, bag))
}

/// The instance that these params make, without its name.
fn built(source: TemplateSource, template: &str, params: Json) -> Result<Json, String> {
    let (instance, bag) = compile(source, template, params)?;
    let mut encoded = Vec::new();
    instance.encode(Attributes::from(&bag), &mut Reads::default(), &mut encoded).unwrap();
    let mut json = crate::trace_json(instance.template.instance(), &encoded);
    json.as_object_mut().unwrap().remove("name");
    Ok(json)
}

/// The one `value` of a listentry.
fn value(source: TemplateSource, text: &str) -> Json {
    built(source, "listentry", json!({ "value": text })).unwrap()["value"].clone()
}

#[test]
fn a_text_within_quotes_is_an_expression_in_a_compiled_template_and_a_literal_in_a_template_resource() {
    let cases = [
        (r#""user-" + s + "-bad""#, json!({"string_value": "user-x-bad"}), r#"user-" + s + "-bad"#),
        (r#""\x2fadmin""#, json!({"string_value": "/admin"}), r"\x2fadmin"),
        (r#""90s""#, json!({"duration_value": {"value": "90s"}}), "90s"),
        (r#""a" | "b""#, json!({"string_value": "a"}), r#"a" | "b"#),
        ("`a\\n`", json!({"string_value": "a\\n"}), "a\\n"),
        (r#""""#, json!({"string_value": ""}), ""),
    ];
    for (text, expression, literal) in cases {
        assert_eq!(value(TemplateSource::Compiled, text), expression, "{text}");
        assert_eq!(value(TemplateSource::Resource, text), json!({ "string_value": literal }), "{text}");
    }
}

#[test]
fn a_string_map_can_be_the_value_of_a_compiled_template_only() {
    let map = json!({"string_map_value": {"value": {"k": "v"}}});
    assert_eq!(value(TemplateSource::Compiled, "m"), map);
    let refused = built(TemplateSource::Resource, "listentry", json!({"value": "m"})).unwrap_err();
    assert!(refused.starts_with("value: a STRING_MAP cannot be put into a Value"), "{refused}");
}

#[test]
fn an_empty_text_leaves_a_field_of_a_compiled_template_out() {
    let params = json!({"severity": "", "timestamp": "", "variables": {"v": "s"}});
    let entry = built(TemplateSource::Compiled, "logentry", params).unwrap();
    assert_eq!(entry, json!({"variables": {"v": {"string_value": "x"}}}));
    assert_eq!(built(TemplateSource::Compiled, "listentry", json!({"value": ""})).unwrap(), json!({}));
    let entry = built(TemplateSource::Compiled, "logentry", json!({"variables": {"v": ""}})).unwrap_err();
    assert!(entry.starts_with("variables[\"v\"]: an entry cannot be empty"), "{entry}");
}

#[test]
fn what_a_field_of_a_compiled_template_cannot_be_is_refused_with_what_to_write() {
    let cases = [
        (
            "logentry",
            json!({"severity": "\"5s\""}),
            "severity: the expression is of type DURATION; the field takes STRING; a text that Go reads as a duration is one; \
             write \"5\" + \"s\" for the text",
        ),
        (
            "logentry",
            json!({"severity": "200"}),
            "severity: the expression is of type INT64; the field takes STRING; write \"\\\"200\\\"\" for the text",
        ),
        (
            "logentry",
            json!({"timestamp": "\"2019-05-06T07:08:09Z\""}),
            "timestamp: the expression is of type STRING; the field takes TIMESTAMP; write it like \
             timestamp(\"2019-05-06T07:08:09Z\")",
        ),
        (
            "logentry",
            json!({"severity": "i"}),
            "severity: the expression is of type INT64; the field takes STRING",
        ),
        ("metric", json!({"value": 200}), "value: expected an expression, which is a text; write \"200\""),
        ("metric", json!({"value": true}), "value: expected an expression, which is a text; write \"true\""),
        ("metric", json!({"value": ["s"]}), "value: expected an expression, which is a text"),
        ("checknothing", json!({"name": "s"}), "name: no such field in the template; it has no fields"),
    ];
    for (template, params, reason) in cases {
        assert_eq!(built(TemplateSource::Compiled, template, params).unwrap_err(), reason);
    }
}

#[test]
fn numbers_and_booleans_stand_for_themselves_in_a_template_resource() {
    let number = built(TemplateSource::Resource, "metric", json!({"value": 200})).unwrap();
    assert_eq!(number, json!({"value": {"double_value": 200.0}}));
    let truth = built(TemplateSource::Resource, "metric", json!({"value": true})).unwrap();
    assert_eq!(truth, json!({"value": {"bool_value": true}}));
}

#[test]
fn constants_are_announced_with_their_types() {
    let (instance, _) = compile(TemplateSource::Compiled, "listentry", json!({"value": "\"90s\""})).unwrap();
    assert_eq!(instance.inferred_type(), [0x08, ValueType::Duration as u8]);
    assert_eq!(instance.expressions().count(), 0);
}

#[test]
fn a_trace_says_how_each_text_is_read_and_what_became_of_it() {
    let explain = |source, params| {
        let (instance, bag) = compile(source, "quota", json!({ "dimensions": params })).unwrap();
        let params = instance.explain(Attributes::from(&bag));
        params.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let params = json!({"a": r#""u-" + s"#, "b": r#""\x2f""#, "c": "i"});
    let compiled = [
        r#"dimensions["a"]: expression "u-" + s -> "u-x" (STRING)"#,
        r#"dimensions["b"]: expression "\x2f" -> "/" (STRING)"#,
        r#"dimensions["c"]: expression i -> 7 (INT64)"#,
    ];
    assert_eq!(explain(TemplateSource::Compiled, params.clone()), compiled);
    let resource = [compiled[0], r#"dimensions["b"]: literal "\x2f" -> "\\x2f" (STRING)"#, compiled[2]];
    assert_eq!(explain(TemplateSource::Resource, params), resource);
}

#[test]
fn a_text_in_backquotes_is_an_expression() {
    let params = json!({"dimensions": {"a": "`user-` + s + `-bad`", "b": "`plain`"}});
    let (instance, bag) = compile(TemplateSource::Resource, "quota", params).unwrap();
    let explained = instance.explain(Attributes::from(&bag));
    assert_eq!(
        explained.iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            r#"dimensions["a"]: expression `user-` + s + `-bad` -> "user-x-bad" (STRING)"#,
            r#"dimensions["b"]: expression `plain` -> "plain" (STRING)"#,
        ]
    );
}

#[test]
fn a_quoted_constant_that_is_not_of_the_fields_type_is_refused_with_an_example() {
    let refused = built(TemplateSource::Resource, "logentry", json!({"timestamp": "\"noon\""})).unwrap_err();
    assert_eq!(
        refused,
        "timestamp: \"noon\" is not of type TIMESTAMP; write it like \"2019-05-06T07:08:09Z\""
    );
}
