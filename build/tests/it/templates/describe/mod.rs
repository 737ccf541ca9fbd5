//! Descriptor sets as text, in the notation of `data/templates.txt`.

use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor};

const MODEL: &str = "mixer/adapter/model/v1beta1";

/// A pool with the files that a real Mixer knows.
fn known() -> DescriptorPool {
    let mut compiler = protox::Compiler::new(["../proto"]).unwrap();
    let model = ["check", "report", "quota", "extensions"].map(|file| format!("{MODEL}/{file}.proto"));
    compiler.open_files(model).unwrap();
    compiler.open_file("google/protobuf/timestamp.proto").unwrap();
    compiler.open_file("google/protobuf/any.proto").unwrap();
    compiler.descriptor_pool()
}

/// The names of the files of a set, in order.
pub(crate) fn files(set: &[u8]) -> Vec<String> {
    let set = <prost_types::FileDescriptorSet as prost::Message>::decode(set).unwrap();
    set.file.iter().map(|file| file.name().to_owned()).collect()
}

/// Describes the handler service in one file of a set.
pub(crate) fn service(set: &[u8], file: &str) -> String {
    let mut pool = known();
    pool.decode_file_descriptor_set(set).unwrap();
    let file = pool.get_file_by_name(file).unwrap();
    assert!(file.file_descriptor_proto().source_code_info.is_none(), "a set without comments");

    let option = |name: &str| {
        let name = format!("{}.{name}", "istio.mixer.adapter.model.v1beta1");
        file.options().get_extension(&pool.get_extension_by_name(&name).unwrap()).into_owned()
    };
    let variety = pool.get_enum_by_name("istio.mixer.adapter.model.v1beta1.TemplateVariety").unwrap();
    let variety = variety.get_value(option("template_variety").as_enum_number().unwrap()).unwrap();
    let name = option("template_name").as_str().unwrap().to_owned();
    let mut lines = vec![format!(
        "template {name}: package {}, variety {}, template_name {name}",
        file.package_name(),
        variety.name().strip_prefix("TEMPLATE_VARIETY_").unwrap(),
    )];
    for service in file.services() {
        for method in service.methods() {
            assert!(!method.is_client_streaming() && !method.is_server_streaming());
            lines.push(format!(
                "rpc /{}/{}: {} -> {}",
                service.full_name(),
                method.name(),
                method.input().name(),
                method.output().full_name(),
            ));
        }
    }
    lines.extend(file.messages().map(|message| format!("{}: {}", message.name(), fields(&message))));
    lines.join("\n")
}

fn fields(message: &MessageDescriptor) -> String {
    // `fields()` is ordered by number; the descriptor has the order of the file.
    let declared = &message.descriptor_proto().field;
    let fields = declared.iter().map(|field| message.get_field_by_name(field.name()).unwrap());
    let fields: Vec<_> =
        fields.map(|f| format!("{} {}={}", label_and_type(&f), f.name(), f.number())).collect();
    if fields.is_empty() { "(no fields)".to_owned() } else { fields.join("; ") }
}

fn label_and_type(field: &FieldDescriptor) -> String {
    match field.kind() {
        Kind::Message(entry) if entry.is_map_entry() => format!(
            "map<{}, {}>",
            type_name(&entry.map_entry_key_field()),
            type_name(&entry.map_entry_value_field())
        ),
        _ if field.is_list() => format!("repeated {}", type_name(field)),
        _ => type_name(field),
    }
}

fn type_name(field: &FieldDescriptor) -> String {
    let name = format!("{:?}", field.kind());
    name.strip_prefix("istio.policy.v1beta1.").unwrap_or(&name).to_owned()
}
