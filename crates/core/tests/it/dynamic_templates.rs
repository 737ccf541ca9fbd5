//! Templates read from descriptors.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use prost::Message as _;
use prost_reflect::DynamicMessage;
use serde_json::{Value as Json, json};

use mixer_adapter_core::{
    framework::{
        dynamic::{DescriptorError, DescriptorSet, DynamicTemplate},
        json::read_json,
    },
    proto::{Any, QuotaRequest, istio::mixer::adapter::model::v1beta1::quota_request::QuotaParams},
    template::{Template, Variety},
    value::{Value, ValueType},
};
use mixer_adapter_templates::{
    Authorization, CheckNothing, ListEntry, Metric, Quota, ReportNothing, STANDARD as TEMPLATES,
    authorization, listentry, metric, quota,
};

fn sample(name: &str) -> DynamicTemplate {
    let path = format!("../../build/tests/data/templates/{name}.proto");
    let set = mixer_adapter_build::Template::open(path).unwrap().descriptor_set();
    DynamicTemplate::new(&DescriptorSet::decode(set).unwrap()).unwrap()
}

fn standard<T: Template>() -> DynamicTemplate {
    DynamicTemplate::new(&DescriptorSet::decode(T::DESCRIPTOR).unwrap()).unwrap()
}

fn instance(template: &DynamicTemplate, json: Json) -> DynamicMessage {
    read_json(template.instance(), json).unwrap()
}

#[test]
fn a_syntax_that_is_not_supported_is_an_error() {
    let file = prost_types::FileDescriptorProto {
        name: Some("a.proto".to_owned()),
        syntax: Some("editions".to_owned()),
        ..Default::default()
    };
    let error = DescriptorSet::decode(prost_types::FileDescriptorSet { file: vec![file] }.encode_to_vec());
    let expected = r#"a.proto: syntax "editions" is not supported; use proto2 or proto3"#;
    assert_eq!(error.unwrap_err().to_string(), expected);
}

#[test]
fn names_that_are_no_identifiers_are_errors() {
    for (package, message, refused) in [
        (".ba", "Params", ""),
        ("a..b", "Params", ""),
        ("a", "P!", "P!"),
        ("a", "1", "1"),
        ("a", "b.c", "b.c"),
    ] {
        let params = prost_types::DescriptorProto { name: Some(message.to_owned()), ..Default::default() };
        let file = prost_types::FileDescriptorProto {
            name: Some("a.proto".to_owned()),
            package: Some(package.to_owned()),
            message_type: vec![params],
            ..Default::default()
        };
        let set = prost_types::FileDescriptorSet { file: vec![file] }.encode_to_vec();
        let error = DescriptorSet::decode(set).unwrap_err();
        assert!(matches!(&error, DescriptorError::InvalidIdentifier(name) if name == refused), "{error}");
    }
}

#[test]
fn every_standard_template_is_found_in_its_descriptor() {
    for (name, descriptor) in TEMPLATES {
        let template = DynamicTemplate::new(&DescriptorSet::decode(*descriptor).unwrap()).unwrap();
        assert_eq!(template.name(), *name);
        assert!(template.instance().full_name().ends_with("InstanceMsg"));
    }
    assert_eq!(standard::<ListEntry>().method(), "/listentry.HandleListEntryService/HandleListEntry");
    assert_eq!(standard::<Quota>().variety(), Variety::Quota);
}

#[test]
fn templates_of_others_are_found_with_their_variety_and_response() {
    let template = sample("checkproducer");
    assert_eq!(template.variety(), Variety::CheckWithOutput);
    assert_eq!(template.method(), "/checkproducer.HandleCheckProducerService/HandleCheckProducer");
    assert_eq!(template.response_message().full_name(), "checkproducer.HandleCheckProducerResponse");
    assert_eq!(sample("sampleapa").variety(), Variety::AttributeGenerator);
}

#[test]
fn descriptors_are_read_from_base64_with_and_without_padding_and_line_breaks() {
    let text = STANDARD.encode(ListEntry::DESCRIPTOR);
    let broken =
        text.as_bytes().chunks(76).map(|line| String::from_utf8_lossy(line) + "\n").collect::<String>();
    for text in [text.as_str(), broken.as_str(), text.trim_end_matches('=')] {
        assert_eq!(
            DynamicTemplate::new(&DescriptorSet::from_base64(text).unwrap()).unwrap().name(),
            "listentry"
        );
    }
}

#[test]
fn unknown_imports_are_taken_as_empty() {
    let imports =
        |file: &mut prost_types::FileDescriptorProto| file.dependency.push("gogoproto/gogo.proto".to_owned());
    let mut file = prost_types::FileDescriptorProto {
        name: Some("config.proto".to_owned()),
        package: Some("other".to_owned()),
        message_type: vec![prost_types::DescriptorProto {
            name: Some("Params".to_owned()),
            ..Default::default()
        }],
        ..Default::default()
    };
    imports(&mut file);
    let set = prost_types::FileDescriptorSet { file: vec![file] }.encode_to_vec();
    assert_eq!(DescriptorSet::decode(set).unwrap().params().unwrap().full_name(), "other.Params");
}

#[test]
fn other_descriptors_are_refused_with_the_reason() {
    let refusal = |set: Result<DescriptorSet, DescriptorError>| {
        set.and_then(|set| DynamicTemplate::new(&set)).unwrap_err().to_string()
    };
    assert!(refusal(DescriptorSet::from_base64("!")).contains("not valid base64"));
    assert!(refusal(DescriptorSet::from_base64("AAAA")).contains("not a google.protobuf.FileDescriptorSet"));
    assert!(refusal(DescriptorSet::decode(&b""[..])).contains("it has no file"));
    let two = DescriptorSet::decode([CheckNothing::DESCRIPTOR, ReportNothing::DESCRIPTOR].concat());
    assert!(refusal(two).contains("both have the option template_variety"));
    let params = DescriptorSet::decode(ListEntry::DESCRIPTOR).unwrap().params().unwrap_err().to_string();
    assert!(params.contains("`Params`"), "{params}");
}

/// A file with the options of a template.
#[derive(Clone, PartialEq, prost::Message)]
struct File {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "8")]
    options: Option<FileOptions>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct FileOptions {
    #[prost(int32, optional, tag = "72295727")]
    template_variety: Option<i32>,
    #[prost(string, optional, tag = "72295888")]
    template_name: Option<String>,
}

#[test]
fn options_of_a_template_are_validated_as_in_mixer() {
    let refusal = |options: FileOptions| {
        let file = File { name: "t.proto".to_owned(), options: Some(options) };
        let set =
            DescriptorSet::decode([&[0x0a, file.encoded_len() as u8], &file.encode_to_vec()[..]].concat());
        DynamicTemplate::new(&set.unwrap()).unwrap_err().to_string()
    };
    let options = |variety, name: Option<&str>| FileOptions {
        template_variety: variety,
        template_name: name.map(str::to_owned),
    };
    assert!(refusal(options(None, Some("t"))).contains("no file has the option template_variety"));
    assert!(refusal(options(Some(0), None)).contains("no option template_name"));
    assert!(refusal(options(Some(0), Some("t-1"))).contains("letters only"));
    assert!(refusal(options(Some(9), Some("t"))).contains("template_variety 9 is not defined"));
    assert!(refusal(options(Some(0), Some("t"))).contains("no service `Handle..`"));
}

#[test]
fn a_request_holds_the_fields_of_its_template() {
    let template = standard::<Quota>();
    let config = Any {
        type_url: "type.googleapis.com/adapter.x.Params".to_owned(),
        value: b"\x08\x01".as_ref().into(),
    };
    let quotas = QuotaRequest {
        quotas: [("q".to_owned(), QuotaParams { amount: 3, best_effort: true, ..QuotaParams::default() })]
            .into(),
    };
    let instance = instance(&template, json!({"name": "q", "dimensions": {"user": "u", "port": 80}}));
    let request = template.request(vec![instance], Some(&config), Some(&quotas)).with_dedup_id("d-1");
    let expected = quota::HandleQuotaRequest {
        instance: Some(quota::InstanceMsg {
            name: "q".to_owned(),
            dimensions: [("user".to_owned(), Value::from("u")), ("port".to_owned(), Value::Int64(80))].into(),
        }),
        adapter_config: Some(config),
        dedup_id: "d-1".to_owned(),
        quota_request: Some(quotas),
    };
    assert_eq!(quota::HandleQuotaRequest::decode(request).unwrap(), expected);
}

#[test]
fn a_report_holds_all_instances() {
    let template = standard::<Metric>();
    let instances = ["a", "b"].map(|name| instance(&template, json!({"name": name, "value": 1}))).to_vec();
    let request = template.request(instances, None, None).with_dedup_id("");
    let request = metric::HandleMetricRequest::decode(request).unwrap();
    assert_eq!(request.instances.iter().map(|i| i.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn types_are_inferred_from_the_values_of_an_instance() {
    let template = standard::<Metric>();
    let instance = instance(
        &template,
        json!({"name": "m", "value": 1.5, "dimensions": {"ip": {"ip_address_value": "1.2.3.4"}, "user": "u"}}),
    );
    let inferred = template.inferred_type(&instance).unwrap();
    let inferred = inferred.transcode_to::<metric::Type>().unwrap();
    assert_eq!(inferred.value(), ValueType::Double);
    let dimensions =
        [("ip".to_owned(), ValueType::IpAddress as i32), ("user".to_owned(), ValueType::String as i32)];
    assert_eq!(inferred.dimensions, dimensions.into());

    let template = standard::<ListEntry>();
    let absent = template.inferred_type(&self::instance(&template, json!({}))).unwrap();
    assert_eq!(absent.transcode_to::<listentry::Type>().unwrap(), listentry::Type::default());
}

#[test]
fn types_within_messages_are_inferred_too() {
    let template = standard::<Authorization>();
    let instance = instance(&template, json!({"subject": {"user": "u", "properties": {"age": 7}}}));
    let inferred = template.inferred_type(&instance).unwrap();
    let inferred = inferred.transcode_to::<authorization::Type>().unwrap();
    let properties = inferred.subject.unwrap().properties;
    assert_eq!(properties, [("age".to_owned(), ValueType::Int64 as i32)].into());
}
