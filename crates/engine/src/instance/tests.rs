#![allow(clippy::unwrap_used)]

use std::fmt::Debug;

use prost::Message;
use serde_json::{Value as Json, json};

use super::*;
use crate::attribute::{AttributeValue, Bag};
use mixer_adapter_build::Template;
use mixer_adapter_core::{
    framework::dynamic::DescriptorSet,
    template::{PathStep, SetField, Template as _},
};
use mixer_adapter_host::handler::BuiltInstance;
use mixer_adapter_templates::STANDARD;

/// An instance of one of the standard templates.
fn compile(source: TemplateSource, template: &str, params: Json) -> Result<(Instance, Bag), String> {
    let (_, descriptor) = STANDARD.iter().find(|(name, _)| *name == template).unwrap();
    compile_of(source, descriptor, params)
}

/// An instance of a template, with `s` declared as STRING, `i` as INT64, `m` as STRING_MAP, and `every` attribute of another type.
fn compile_of(source: TemplateSource, descriptor: &[u8], params: Json) -> Result<(Instance, Bag), String> {
    let mut vocabulary = Vocabulary::new();
    for (name, value_type, _) in every() {
        vocabulary.declare(name, value_type).unwrap();
    }
    vocabulary.declare("s", ValueType::String).unwrap();
    vocabulary.declare("i", ValueType::Int64).unwrap();
    vocabulary.declare("m", ValueType::StringMap).unwrap();
    let template = DescriptorSet::decode(descriptor.to_vec()).unwrap();
    let template = Arc::new(DynamicTemplate::new(&template).unwrap());
    let Json::Object(params) = params else { panic!("params are an object") };
    let instance = Instance::compile("i".into(), source, template, params, &vocabulary, Language::Cexl)
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))?;
    let mut bag = Bag::new(Arc::new(vocabulary));
    bag.insert("s", "x");
    bag.insert("i", 7);
    let map = [("k", "v")].map(|(key, value)| (Arc::from(key), Arc::from(value)));
    bag.insert("m", AttributeValue::StringMap(map.into_iter().collect()));
    for (name, _, value) in every() {
        bag.insert(name, value);
    }
    Ok((instance, bag))
}

/// An attribute of each type that has values of its own.
fn every() -> [(&'static str, ValueType, AttributeValue); 8] {
    [
        ("double", ValueType::Double, 0.5.into()),
        ("bool", ValueType::Bool, true.into()),
        ("time", ValueType::Timestamp, std::time::SystemTime::UNIX_EPOCH.into()),
        ("duration", ValueType::Duration, AttributeValue::Duration(-1_500_000_000)),
        ("ip", ValueType::IpAddress, std::net::Ipv4Addr::LOCALHOST.into()),
        ("email", ValueType::EmailAddress, "a@b".into()),
        ("dns", ValueType::DnsName, "a.b".into()),
        ("uri", ValueType::Uri, "/a".into()),
    ]
}

/// Returns the instance that is built for an adapter in this process. It equals the decoded one.
fn local<M: Message + SetField + Default + Clone + PartialEq + Debug + 'static>(
    source: TemplateSource,
    descriptor: &[u8],
    params: Json,
) -> M {
    let (instance, bag) = compile_of(source, descriptor, params).unwrap();
    let (mut reads, mut local_reads, mut encoded) = (Reads::default(), Reads::default(), Vec::new());
    instance.encode(Attributes::from(&bag), &mut reads, &mut encoded).unwrap();
    let form = LocalForm::new(&instance, |constants| Some(Box::new(M::decode(constants).unwrap()))).unwrap();
    let mut built = BuiltInstance::local(form.build(Attributes::from(&bag), &mut local_reads).unwrap());
    assert_eq!(format!("{local_reads:?}"), format!("{reads:?}"));
    assert_eq!(built.encoded_len(), built.encoded().len());
    let message = built.take::<M>().unwrap();
    assert_eq!(message, M::decode(&*encoded).unwrap());
    message
}

#[test]
fn an_instance_for_an_adapter_in_the_process_equals_the_decoded_one() {
    use mixer_adapter_templates::*;
    let names = ["s", "i", "double", "bool", "time", "duration", "ip", "email", "dns", "uri", "\"x\"", "5"];
    let values: Json = names.iter().map(|name| ((*name).to_owned(), json!(name))).collect();
    for source in [TemplateSource::Compiled, TemplateSource::Resource] {
        let params = json!({"variables": values, "timestamp": "time", "severity": "s"});
        let entry: logentry::InstanceMsg = local(source, LogEntry::DESCRIPTOR, params);
        assert_eq!((entry.variables.len(), &*entry.severity, &*entry.name), (names.len(), "x", "i"));
        local::<listentry::InstanceMsg>(source, ListEntry::DESCRIPTOR, json!({"value": "uri"}));
        local::<listentry::InstanceMsg>(source, ListEntry::DESCRIPTOR, json!({}));
        local::<checknothing::InstanceMsg>(source, CheckNothing::DESCRIPTOR, json!({}));
        local::<reportnothing::InstanceMsg>(source, ReportNothing::DESCRIPTOR, json!({}));
        local::<quota::InstanceMsg>(source, Quota::DESCRIPTOR, json!({"dimensions": values}));
        local::<metric::InstanceMsg>(source, Metric::DESCRIPTOR, json!({"value": "i", "dimensions": values}));
        local::<apikey::InstanceMsg>(source, ApiKey::DESCRIPTOR, json!({"api": "s", "timestamp": "time"}));
        local::<edge::InstanceMsg>(source, Edge::DESCRIPTOR, json!({"timestamp": "time", "source_uid": "s"}));
        let params = json!({"source_ip": "ip", "destination_port": "i", "source_uid": "s"});
        local::<kubernetes::InstanceMsg>(source, Kubernetes::DESCRIPTOR, params);
        let params =
            json!({"httpStatusCode": "i", "client_span": "bool", "span_tags": {"a": "s"}, "source_ip": "ip"});
        local::<tracespan::InstanceMsg>(source, TraceSpan::DESCRIPTOR, params);
        let subject = json!({"user": "s", "groups": "\"g\"", "properties": {"a": "ip", "b": "\"c\""}});
        let params = json!({"subject": subject, "action": {}});
        let built: authorization::InstanceMsg = local(source, Authorization::DESCRIPTOR, params);
        assert!(built.action.is_some() && built.subject.unwrap().groups == "g");
    }
    local::<listentry::InstanceMsg>(TemplateSource::Compiled, ListEntry::DESCRIPTOR, json!({"value": "m"}));
}

/// The messages of the generator's template with fields of all shapes. The generator writes `SetField` the same way.
mod shapes {
    use std::collections::BTreeMap;

    use mixer_adapter_core::value::{EmailAddress, Uri, Value};

    use super::*;

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct InstanceMsg {
        #[prost(message, optional, tag = "2")]
        pub(super) policy: Option<Uri>,
        #[prost(btree_map = "string, double", tag = "5")]
        pub(super) scalars: BTreeMap<String, f64>,
        #[prost(btree_map = "string, message", tag = "6")]
        pub(super) policies: BTreeMap<String, EmailAddress>,
        #[prost(message, optional, boxed, tag = "7")]
        pub(super) part: Option<Box<PartMsg>>,
        #[prost(message, repeated, tag = "8")]
        pub(super) parts: Vec<PartMsg>,
        #[prost(btree_map = "string, message", tag = "9")]
        pub(super) parts_by_name: BTreeMap<String, PartMsg>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct PartMsg {
        #[prost(bool, tag = "1")]
        pub(super) flag: bool,
        #[prost(message, optional, tag = "2")]
        pub(super) value: Option<Value>,
        #[prost(message, optional, boxed, tag = "3")]
        pub(super) part: Option<Box<PartMsg>>,
    }

    impl SetField for InstanceMsg {
        fn set(&mut self, path: &[PathStep], value: Value) -> bool {
            let [PathStep::Field(number), path @ ..] = path else { return false };
            match number {
                2 => self.policy.set(path, value),
                5 => self.scalars.set(path, value),
                6 => self.policies.set(path, value),
                7 => self.part.set(path, value),
                8 => self.parts.set(path, value),
                9 => self.parts_by_name.set(path, value),
                _ => false,
            }
        }
    }

    impl SetField for PartMsg {
        fn set(&mut self, path: &[PathStep], value: Value) -> bool {
            let [PathStep::Field(number), path @ ..] = path else { return false };
            match number {
                1 => self.flag.set(path, value),
                2 => self.value.set(path, value),
                3 => self.part.set(path, value),
                _ => false,
            }
        }
    }
}

#[test]
fn lists_and_maps_of_messages_are_built_for_adapters_in_the_process() {
    let descriptor =
        Template::open("../../build/tests/data/templates/shapes.proto").unwrap().descriptor_set();
    let part = json!({"flag": "bool", "part": {"value": "s", "part": {"value": "time"}}});
    let params = json!({
        "policy": "uri", "scalars": {"a": "double"}, "policies": {"a": "email"}, "part": part,
        "parts": [{"flag": "bool"}, {"value": "\"x\""}, {}, part, {"value": "ip"}],
        "parts_by_name": {"a": {}, "b": part, "c": {"value": "i", "flag": "true"}},
    });
    let built: shapes::InstanceMsg = local(TemplateSource::Compiled, &descriptor, params);
    assert_eq!((built.parts.len(), built.parts_by_name.len()), (5, 3));
    // The adapter's message has no such field, or another type.
    for params in [json!({"scalar": "s"}), json!({"values": {"a": "s"}})] {
        let (instance, _) = compile_of(TemplateSource::Compiled, &descriptor, params).unwrap();
        let decode = |constants: &[u8]| -> Option<Box<dyn LocalInstance>> {
            Some(Box::new(shapes::InstanceMsg::decode(constants).ok()?))
        };
        assert!(LocalForm::new(&instance, decode).is_none());
    }
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
