//! Handler services generated from templates, compared to those of Istio.

mod describe;

use std::{collections::BTreeMap, path::PathBuf};

use mixer_adapter_build::Template;

fn standard(name: &str) -> Template {
    Template::open(format!("../templates/{name}/template.proto")).unwrap()
}

fn sample(name: &str) -> Template {
    Template::open(format!("tests/data/templates/{name}.proto")).unwrap()
}

fn described(template: &Template) -> String {
    describe::service(&template.descriptor_set(), template.service_proto_name())
}

/// The entries of a file of expectations, by template name.
fn expected(text: &str) -> BTreeMap<&str, &str> {
    let entries = text.split("\n\n").filter(|entry| entry.starts_with("template "));
    entries.map(|entry| (&entry["template ".len()..entry.find(':').unwrap()], entry.trim_end())).collect()
}

#[test]
fn the_standard_templates_have_the_services_of_istio() {
    let mut expected = expected(include_str!("../data/templates.txt"));
    for name in ["sampleapa", "checkproducer"] {
        assert_eq!(described(&sample(name)), expected.remove(name).unwrap());
    }
    let folders = std::fs::read_dir("../templates").unwrap().map(|entry| entry.unwrap().path());
    let folders = folders.filter(|folder| folder.join("template.proto").exists());
    assert_eq!(folders.count(), expected.len(), "each folder is one of the standard templates");
    for (name, expected) in expected {
        assert_eq!(described(&standard(name)), expected);
    }
}

#[test]
fn templates_of_an_author_have_the_services_mixer_was_recorded_with() {
    let expected = expected(include_str!("../data/own-templates.txt"));
    for path in ["../examples/tagcheck/template.proto", "../tests/adapters/protos/ownergen.proto"] {
        let template = Template::open(path).unwrap();
        assert_eq!(described(&template), expected[template.name()]);
    }
}

#[test]
fn each_kind_of_field_is_generated_as_by_mixgen() {
    let expected = expected(include_str!("../data/shapes.txt"));
    let template = sample("shapes");
    assert_eq!(described(&template), expected["formsoffields"]);
    let rust = template.rust().unwrap().split_whitespace().collect::<String>();
    assert!(rust.contains("pubparts:::mixer_adapter::prost::alloc::vec::Vec<PartMsg>,"), "{rust}");
    assert!(
        rust.contains("pubpart:::core::option::Option<::mixer_adapter::prost::alloc::boxed::Box<PartMsg>>,"),
        "{rust}"
    );
}

#[test]
fn the_fields_of_instances_are_set_by_number() {
    let rust = sample("shapes").rust().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    let set = "::mixer_adapter::template::SetField::set(&mut self";
    let part = format!(
        "impl ::mixer_adapter::template::SetField for PartMsg {{ \
         fn set(&mut self, path: &[::mixer_adapter::template::PathStep], value: ::mixer_adapter::value::Value) -> bool {{ \
         let [::mixer_adapter::template::PathStep::Field(number), path @ ..] = path else {{ return false }}; \
         match number {{ 1 => {set}.flag, path, value), 2 => {set}.value, path, value), 3 => {set}.part, path, value), \
         _ => false, }} }} }}"
    );
    assert!(rust.contains(&part), "{rust}");
    assert_eq!(rust.matches("SetField for").count(), 2, "{rust}");
    let span = standard("tracespan").rust().unwrap();
    assert!(span.contains(&format!("8 => {set}.http_status_code, path, value),")), "{span}");
}

#[test]
fn descriptor_sets_contain_only_what_mixer_needs() {
    let files = |template: &Template| describe::files(&template.descriptor_set());
    assert_eq!(files(&standard("checknothing")), ["checknothing/template_handler_service.proto"]);
    assert_eq!(
        files(&standard("apikey")),
        ["policy/v1beta1/type.proto", "apikey/template_handler_service.proto"]
    );
    assert_eq!(
        files(&standard("listentry")),
        [
            "policy/v1beta1/type.proto",
            "policy/v1beta1/value_type.proto",
            "listentry/template_handler_service.proto"
        ]
    );
    let size = standard("listentry").descriptor_set().len();
    assert!(size < 3000, "{size} bytes for listentry; with comments and imports it was 100 kB in Istio");
}

#[test]
fn comments_are_listed_by_the_name_of_their_element() {
    let comments = standard("listentry").comments();
    assert!(
        comments.lines().any(|line| line == "listentry.InstanceMsg.value\tThe value to look up."),
        "{comments}"
    );
}

#[test]
fn rust_names_the_template_and_its_answer() {
    let declared = |template: Template| {
        let rust = template.rust().unwrap();
        let declaration = &rust[rust.find("::mixer_adapter::declare_template!").unwrap()..];
        declaration.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let model = "::mixer_adapter::proto::istio::mixer::adapter::model::v1beta1";
    let expect = |template: Template, expected: String| {
        let declared = declared(template);
        assert!(declared.contains(&expected), "{expected}\nis not in\n{declared}");
    };
    let check = "/// A value to look up in a list. Adapters say whether it is on the list. Check ListEntry { \
                 name: \"listentry\", package: \"listentry\", method: \"/listentry.HandleListEntryService/HandleListEntry\", \
                 descriptor: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/listentry.bin\")), \
                 comments: include_str!(concat!(env!(\"OUT_DIR\"), \"/listentry.comments\")), \
                 request: HandleListEntryRequest, response:";
    expect(standard("listentry"), format!("{check} {model}::CheckResult, }}"));
    expect(standard("metric"), format!("request: HandleMetricRequest, response: {model}::ReportResult,"));
    expect(standard("quota"), format!("request: HandleQuotaRequest, response: {model}::QuotaResult,"));
    expect(standard("kubernetes"), "AttributeGenerator Kubernetes {".to_owned());
    expect(standard("kubernetes"), "package: \"adapter.template.kubernetes\",".to_owned());
    expect(standard("kubernetes"), "request: HandleKubernetesRequest, response: OutputMsg,".to_owned());
    expect(sample("checkproducer"), "CheckWithOutput CheckProducer {".to_owned());
    expect(sample("checkproducer"), "response: HandleCheckProducerResponse,".to_owned());
}

#[test]
fn rust_uses_the_types_of_the_framework() {
    let rust = standard("logentry").rust().unwrap();
    assert!(rust.contains("adapter_config: ::core::option::Option<::mixer_adapter::proto::Any>"));
    assert!(rust.contains("timestamp: ::core::option::Option<::mixer_adapter::value::TimeStamp>"));
    assert!(rust.contains("btree_map = \"string, message\""));
    assert!(!rust.contains("HashMap"));
    assert!(!rust.contains("pub struct Value"), "values are the framework's");
    let elsewhere = rust.replace("::mixer_adapter::prost", "");
    assert!(!elsewhere.contains("::prost"), "authors do not depend on prost");
}

#[test]
fn the_service_proto_compiles_for_others_too() {
    let template = sample("shapes");
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join(template.service_proto_name());
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, template.service_proto()).unwrap();
    protox::compile([&path], [folder.path(), "../proto".as_ref()]).unwrap();
}
