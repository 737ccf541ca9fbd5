//! Configuration messages in which scalar fields have presence, so that an explicit zero differs from an absent field.

use prost::Message as _;
use prost_reflect::{DescriptorPool, MessageDescriptor};
use prost_types::{
    DescriptorProto, FileDescriptorSet, OneofDescriptorProto,
    field_descriptor_proto::{Label, Type},
};

use super::dynamic::DescriptorError;

/// Reads a descriptor set and makes every plain scalar field `optional`.
///
/// The set that a real Mixer receives has no `optional` fields, because its parser does not know them; Mixer itself writes
/// zeros (docs/behaviour/adapter-calls.md#encoding-of-requests). Otherwise the encoding is unchanged.
///
/// # Errors
/// The bytes are not a descriptor set, or its files are inconsistent.
pub fn pool_with_optional_fields(set: &[u8]) -> Result<DescriptorPool, DescriptorError> {
    let mut set = FileDescriptorSet::decode(set)?;
    let proto3 = set.file.iter_mut().filter(|file| file.syntax() == "proto3");
    for message in proto3.flat_map(|file| &mut file.message_type) {
        make_optional(message);
    }
    Ok(DescriptorPool::from_file_descriptor_set(set)?)
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

fn make_optional(message: &mut DescriptorProto) {
    if message.options.as_ref().is_some_and(|options| options.map_entry()) {
        return;
    }
    for field in &mut message.field {
        let is_plain = field.label() != Label::Repeated && field.oneof_index.is_none();
        if is_plain && !matches!(field.r#type(), Type::Message | Type::Group) {
            field.proto3_optional = Some(true);
            field.oneof_index = i32::try_from(message.oneof_decl.len()).ok();
            let name = Some(format!("_{}", field.name()));
            message.oneof_decl.push(OneofDescriptorProto { name, options: None });
        }
    }
    message.nested_type.iter_mut().for_each(make_optional);
}
