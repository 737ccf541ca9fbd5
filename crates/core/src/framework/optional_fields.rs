//! Configuration messages in which scalar fields have presence, so that an explicit zero differs from an absent field.

use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FileDescriptor, MessageDescriptor, ReflectMessage as _, Value,
};
use prost_types::{
    FileDescriptorProto, FileDescriptorSet,
    field_descriptor_proto::{Label, Type},
};

use super::dynamic::{DescriptorError, known_file};

/// Reads a descriptor set and makes every plain scalar field `optional`. If a field can have any message, the details of statuses are
/// added.
///
/// The set that a real Mixer receives has no `optional` fields, because its parser does not know them; Mixer itself writes
/// zeros (docs/behaviour/adapter-calls.md#encoding-of-requests). Otherwise the encoding is unchanged.
///
/// # Errors
/// The bytes are not a descriptor set, or its files are inconsistent.
pub fn pool_with_optional_fields(set: &[u8]) -> Result<DescriptorPool, DescriptorError> {
    // Dynamic messages keep custom options (docs/behaviour/libraries.md#options-in-prost-types).
    let mut set = DynamicMessage::decode(FileDescriptorSet::default().descriptor(), set)?;
    for file in messages(&mut set, "file") {
        if file.get_field_by_name("syntax").is_some_and(|syntax| syntax.as_str() == Some("proto3")) {
            messages(file, "message_type").for_each(make_optional);
        }
    }
    let pool = DescriptorPool::decode(&*set.encode_to_vec())?;
    Ok(with_details(&pool).unwrap_or(pool))
}

/// The files with messages that are details of statuses.
const DETAILS: [&str; 2] = ["policy/v1beta1/http_response.proto", "google/rpc/error_details.proto"];

/// Adds the messages of [`DETAILS`] and their imports. `None` if no field can have them, or if the pool has others of their names.
fn with_details(pool: &DescriptorPool) -> Option<DescriptorPool> {
    pool.get_message_by_name("google.protobuf.Any")?;
    let mut pool = pool.clone();
    let mut missing: Vec<FileDescriptorProto> = Vec::new();
    let mut wanted: Vec<FileDescriptor> = DETAILS.iter().filter_map(|name| known_file(name)).collect();
    while let Some(file) = wanted.pop() {
        let is_missing = pool.get_file_by_name(file.name()).is_none();
        if is_missing && !missing.contains(file.file_descriptor_proto()) {
            wanted.extend(file.dependencies());
            missing.push(file.file_descriptor_proto().clone());
        }
    }
    pool.add_file_descriptor_protos(missing).ok()?;
    Some(pool)
}

/// Returns a message with every plain scalar field made `optional`, as by [`pool_with_optional_fields`].
///
/// # Errors
/// Same as [`pool_with_optional_fields`].
pub fn message_with_optional_fields(
    message: &MessageDescriptor,
) -> Result<MessageDescriptor, DescriptorError> {
    let pool = pool_with_optional_fields(&message.parent_pool().encode_to_vec())?;
    let name = message.full_name();
    pool.get_message_by_name(name).ok_or_else(|| DescriptorError::NoMessage(name.to_owned()))
}

fn make_optional(message: &mut DynamicMessage) {
    let options = message.get_field_by_name("options");
    let is_map_entry = options.as_deref().and_then(Value::as_message).is_some_and(|options| {
        options.get_field_by_name("map_entry").is_some_and(|entry| entry.as_bool() == Some(true))
    });
    if is_map_entry {
        return;
    }
    let Some(mut oneofs) = message.get_field_by_name("oneof_decl").map(|oneofs| oneofs.into_owned()) else {
        return;
    };
    let Value::List(oneofs) = &mut oneofs else { return };
    let Some(of_oneof) = message.descriptor().get_field_by_name("oneof_decl").map(|field| field.kind())
    else {
        return;
    };
    for field in messages(message, "field").filter(|field| is_plain_scalar(field)) {
        let Some(name) =
            field.get_field_by_name("name").and_then(|name| name.as_str().map(|name| format!("_{name}")))
        else {
            continue;
        };
        let Ok(index) = i32::try_from(oneofs.len()) else { continue };
        field.set_field_by_name("proto3_optional", Value::Bool(true));
        field.set_field_by_name("oneof_index", Value::I32(index));
        let mut oneof = Value::default_value(&of_oneof);
        if let Value::Message(oneof) = &mut oneof {
            oneof.set_field_by_name("name", Value::String(name));
        }
        oneofs.push(oneof);
    }
    message.set_field_by_name("oneof_decl", Value::List(std::mem::take(oneofs)));
    messages(message, "nested_type").for_each(make_optional);
}

fn is_plain_scalar(field: &DynamicMessage) -> bool {
    let [label, field_type] =
        ["label", "type"].map(|name| field.get_field_by_name(name).and_then(|value| value.as_enum_number()));
    !field.has_field_by_name("oneof_index")
        && label != Some(Label::Repeated as i32)
        && ![Some(Type::Message as i32), Some(Type::Group as i32)].contains(&field_type)
}

fn messages<'a>(parent: &'a mut DynamicMessage, field: &str) -> impl Iterator<Item = &'a mut DynamicMessage> {
    let list = parent.get_field_by_name_mut(field).and_then(Value::as_list_mut);
    list.into_iter().flatten().filter_map(Value::as_message_mut)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn messages_with_any_know_the_details_of_statuses() {
        let set = |names: &[&str]| {
            let file = names.iter().map(|name| known_file(name).unwrap().file_descriptor_proto().clone());
            FileDescriptorSet { file: file.collect() }.encode_to_vec()
        };
        let details =
            ["istio.policy.v1beta1.DirectHttpResponse", "google.rpc.ErrorInfo", "google.rpc.RetryInfo"];
        let status = ["google/protobuf/any.proto", "google/rpc/status.proto"];
        let pool = pool_with_optional_fields(&set(&status)).unwrap();
        for name in details {
            assert!(pool.get_message_by_name(name).is_some(), "{name}");
        }
        let without = pool_with_optional_fields(&set(&["google/protobuf/duration.proto"])).unwrap();
        assert!(details.iter().all(|name| without.get_message_by_name(name).is_none()));

        // An adapter can have messages of the same names.
        let mut own = FileDescriptorSet::decode(&*set(&["google/rpc/error_details.proto"])).unwrap();
        own.file[0].name = Some("own.proto".to_owned());
        let others = FileDescriptorSet::decode(&*set(&[
            "google/protobuf/any.proto",
            "google/protobuf/duration.proto",
        ]))
        .unwrap();
        own.file.extend(others.file);
        let pool = pool_with_optional_fields(&own.encode_to_vec()).unwrap();
        let info = pool.get_message_by_name("google.rpc.ErrorInfo").unwrap();
        assert_eq!(info.parent_file().name(), "own.proto");
    }
}
