//! Reduces descriptors to what is needed to read and write messages.

use anyhow::Result;
use prost::Message as _;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumOptions, EnumValueOptions, FieldDescriptorProto, FieldOptions,
    FileDescriptorSet, MessageOptions,
};

/// Returns an encoded `FileDescriptorSet` without comments, services, extensions and options.
///
/// Names, numbers and types remain, and of the options those that change the encoding or mark something as deprecated.
///
/// # Errors
///
/// `set` is not an encoded `FileDescriptorSet`.
pub(crate) fn without_details(set: &[u8]) -> Result<Vec<u8>> {
    let mut set = FileDescriptorSet::decode(set)?;
    for file in &mut set.file {
        file.source_code_info = None;
        file.options = None;
        file.service.clear();
        file.extension.clear();
        file.message_type.iter_mut().for_each(reduce_message);
        file.enum_type.iter_mut().for_each(reduce_enum);
    }
    set.file.sort_by(|one, other| one.name().cmp(other.name()));
    Ok(set.encode_to_vec())
}

fn reduce_message(message: &mut DescriptorProto) {
    message.options = message.options.take().and_then(|options| {
        let reduced = MessageOptions {
            deprecated: options.deprecated,
            map_entry: options.map_entry,
            ..MessageOptions::default()
        };
        (reduced != MessageOptions::default()).then_some(reduced)
    });
    message.extension.clear();
    message.reserved_name.clear();
    message.reserved_range.clear();
    message.oneof_decl.iter_mut().for_each(|oneof| oneof.options = None);
    message.field.iter_mut().for_each(reduce_field);
    message.nested_type.iter_mut().for_each(reduce_message);
    message.enum_type.iter_mut().for_each(reduce_enum);
}

fn reduce_field(field: &mut FieldDescriptorProto) {
    // Readers derive the same name from the field's.
    field.json_name = None;
    field.options = field.options.take().and_then(|options| {
        let reduced = FieldOptions {
            deprecated: options.deprecated,
            packed: options.packed,
            ..FieldOptions::default()
        };
        (reduced != FieldOptions::default()).then_some(reduced)
    });
}

fn reduce_enum(enumeration: &mut EnumDescriptorProto) {
    enumeration.options = enumeration.options.take().and_then(|options| {
        let reduced = EnumOptions {
            allow_alias: options.allow_alias,
            deprecated: options.deprecated,
            ..EnumOptions::default()
        };
        (reduced != EnumOptions::default()).then_some(reduced)
    });
    enumeration.reserved_name.clear();
    enumeration.reserved_range.clear();
    for value in &mut enumeration.value {
        value.options = value
            .options
            .take()
            .filter(|options| options.deprecated == Some(true))
            .map(|_| EnumValueOptions { deprecated: Some(true), ..EnumValueOptions::default() });
    }
}
