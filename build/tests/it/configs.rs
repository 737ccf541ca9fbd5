//! Generated code and descriptors of adapter configurations.

use mixer_adapter_build::ConfigProto;
use prost::Message;
use prost_reflect::DescriptorPool;
use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};

fn config() -> ConfigProto {
    ConfigProto::open("tests/data/config/config.proto").unwrap()
}

fn files() -> Vec<FileDescriptorProto> {
    FileDescriptorSet::decode(&*config().descriptor_set()).unwrap().file
}

fn params() -> DescriptorProto {
    files().pop().unwrap().message_type.remove(0)
}

#[test]
fn the_set_has_all_imports_and_no_comments() {
    let files = files();
    let names: Vec<_> = files.iter().map(FileDescriptorProto::name).collect();
    assert_eq!(
        names,
        [
            "google/protobuf/duration.proto",
            "limits.proto",
            "google/protobuf/timestamp.proto",
            "policy/v1beta1/type.proto",
            "config.proto"
        ]
    );
    assert!(files.iter().all(|file| file.source_code_info.is_none()));
    let pool = DescriptorPool::decode(&*config().descriptor_set()).unwrap();
    assert!(pool.get_message_by_name(&config().message()).is_some());
}

#[test]
fn optional_fields_are_plain_ones_in_the_set() {
    fn assert_plain(message: &DescriptorProto) {
        for field in &message.field {
            assert!(!field.proto3_optional(), "{}", field.name());
        }
        message.nested_type.iter().for_each(assert_plain);
    }
    let params = params();
    assert_plain(&params);
    let oneofs: Vec<_> = params.oneof_decl.iter().map(|oneof| oneof.name()).collect();
    assert_eq!(oneofs, ["which"], "real oneofs stay");
    let in_oneof: Vec<_> =
        params.field.iter().filter(|f| f.oneof_index.is_some()).map(|f| f.name()).collect();
    assert_eq!(in_oneof, ["file", "url"]);
    assert!(params.nested_type.iter().all(|nested| nested.oneof_decl.is_empty()));
}

#[test]
fn optional_fields_are_options_in_rust() {
    let rust = config().rust().unwrap();
    assert!(rust.contains("pub limit: ::core::option::Option<i64>"), "{rust}");
    assert!(rust.contains("pub depth: ::core::option::Option<i32>"), "{rust}");
}

#[test]
fn params_are_the_configuration_of_an_adapter() {
    let rust = config().rust().unwrap();
    let implementation = rust.find("impl ::mixer_adapter::adapter::Config for Params {").unwrap();
    let implementation = &rust[implementation..];
    assert!(implementation.contains("const NAME: &'static str = \"adapter.demo.config.Params\";"));
    assert!(
        implementation.contains("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/adapter.demo.config.bin\"))")
    );
}

#[test]
fn authors_need_the_framework_and_no_other_crate() {
    let rust = config().rust().unwrap();
    assert!(rust.contains("::core::option::Option<::mixer_adapter::prost_types::Duration>"));
    assert!(rust.contains("::core::option::Option<::mixer_adapter::value::Value>"));
    let elsewhere = rust.replace("::mixer_adapter::prost", "");
    assert!(!elsewhere.contains("::prost"), "{elsewhere}");
}

#[test]
fn messages_of_files_beside_it_are_in_the_same_module() {
    assert!(config().rust().unwrap().contains("pub struct Limits {"));
}

#[test]
fn code_in_comments_is_not_a_doctest() {
    let rust = config().rust().unwrap();
    let docs: Vec<_> = rust.lines().filter_map(|line| line.trim().strip_prefix("///")).collect();
    assert!(docs.contains(&" params: { limit: 5 }"), "indentation is removed: {docs:#?}");
    let fences: Vec<_> = docs.iter().filter(|line| line.contains("```")).copied().collect();
    assert_eq!(fences, [" ```text", " ```"]);
}
