//! The messages are those of Envoy, less the fields that are not read or written here.

use prost_reflect::{DescriptorPool, EnumDescriptor, MessageDescriptor};

/// The protos of Envoy in `proto/`.
fn own() -> DescriptorPool {
    let paths = mixer_adapter_proto::FILES.iter().map(|(path, _)| *path);
    let paths: Vec<_> = paths.filter(|path| path.starts_with("envoy/")).collect();
    mixer_adapter_build::compile(&[], &paths).unwrap()
}

/// Fields that are newer than the descriptors, and seen in those of Envoy 1.40.0 itself.
const NEWER: [&str; 2] = [
    "envoy.extensions.common.ratelimit.v3.RateLimitDescriptor.RateLimitOverride.unit_multiplier",
    "envoy.service.ratelimit.v3.RateLimitResponse.RateLimit.unit_multiplier",
];

/// A field of version 2, which clients of that version send.
const FORMER: &str = "envoy.config.core.v3.Node.build_version";

/// The descriptors of Envoy's API.
fn envoy() -> DescriptorPool {
    DescriptorPool::decode(&include_bytes!("../../../streams/descriptors/envoy.binpb")[..]).unwrap()
}

#[test]
fn each_field_has_the_name_the_number_and_the_type_of_envoys() {
    let envoy = envoy();
    let mut compared = 0;
    for message in own().all_messages().filter(|message| message.full_name().starts_with("envoy.")) {
        let original = envoy.get_message_by_name(message.full_name()).unwrap();
        compared += compare(&message, &original);
    }
    assert!(compared > 150, "only {compared} fields");
}

fn compare(message: &MessageDescriptor, original: &MessageDescriptor) -> usize {
    for field in message.fields() {
        if NEWER.contains(&field.full_name()) || field.full_name() == FORMER {
            continue;
        }
        let theirs = original.get_field(field.number());
        let theirs = theirs.unwrap_or_else(|| panic!("{}: Envoy has no such field", field.full_name()));
        assert_eq!(field.full_name(), theirs.full_name());
        assert_eq!(format!("{:?}", field.kind()), format!("{:?}", theirs.kind()), "{}", field.full_name());
        assert_eq!(field.cardinality(), theirs.cardinality(), "{}", field.full_name());
        let oneof = |field: &prost_reflect::FieldDescriptor| {
            field.containing_oneof().map(|oneof| oneof.name().to_owned())
        };
        assert_eq!(oneof(&field), oneof(&theirs), "{}", field.full_name());
    }
    message.fields().count()
}

#[test]
fn each_value_has_the_name_and_the_number_of_envoys() {
    let values = |list: &EnumDescriptor| -> Vec<(String, i32)> {
        list.values().map(|value| (value.name().to_owned(), value.number())).collect()
    };
    let envoy = envoy();
    for list in own().all_enums().filter(|list| list.full_name().starts_with("envoy.")) {
        let original = values(&envoy.get_enum_by_name(list.full_name()).unwrap());
        for value in values(&list) {
            assert!(original.contains(&value), "{}: {value:?}", list.full_name());
        }
    }
}
