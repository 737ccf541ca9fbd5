//! Configuration messages in which every scalar says whether it is there, so that a zero that was written stays one.

use prost::Message as _;
use prost_reflect::{DescriptorError, DescriptorPool, MessageDescriptor};
use prost_types::{
    DescriptorProto, FileDescriptorSet, OneofDescriptorProto,
    field_descriptor_proto::{Label, Type},
};

/// Reads a descriptor set with every plain scalar made `optional`.
///
/// The set that a real Mixer is given has no `optional` (its parser does not know it), and Mixer itself writes zeros
/// (docs/behaviour/adapter-calls.md#encoding-of-requests). On the wire nothing changes but that.
pub fn with_presence(set: &[u8]) -> Result<DescriptorPool, String> {
    let mut set = FileDescriptorSet::decode(set).map_err(|error| error.to_string())?;
    let proto3 = set.file.iter_mut().filter(|file| file.syntax() == "proto3");
    for message in proto3.flat_map(|file| &mut file.message_type) {
        make_optional(message);
    }
    DescriptorPool::from_file_descriptor_set(set).map_err(|error: DescriptorError| error.to_string())
}

/// That message, with presence.
pub fn present(message: &MessageDescriptor) -> Result<MessageDescriptor, String> {
    let pool = with_presence(&message.parent_pool().encode_to_vec())?;
    pool.get_message_by_name(message.full_name())
        .ok_or_else(|| format!("no message `{}`", message.full_name()))
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
