//! Makes `crates/config/proto/envoy.binpb` from the descriptors of the crate envoy-types; crates/config/proto/README.md has the
//! command.
//!
//! Keeps names, numbers, types and deprecation; removes comments, other options, services and extensions.

use std::{env, error::Error, fs};

use prost::Message as _;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumOptions, EnumValueOptions, FieldDescriptorProto, FieldOptions,
    FileDescriptorSet, MessageOptions,
};

fn main() -> Result<(), Box<dyn Error>> {
    let [from, to] =
        env::args().skip(1).collect::<Vec<_>>().try_into().map_err(|_| "give two paths: FROM TO")?;
    let mut set = FileDescriptorSet::decode(&*fs::read(from)?)?;
    for file in &mut set.file {
        file.source_code_info = None;
        file.options = None;
        file.service.clear();
        file.extension.clear();
        file.message_type.iter_mut().for_each(message);
        file.enum_type.iter_mut().for_each(enumeration);
    }
    set.file.sort_by(|one, other| one.name().cmp(other.name()));
    Ok(fs::write(to, set.encode_to_vec())?)
}

fn message(message: &mut DescriptorProto) {
    message.options = message.options.take().and_then(|options| {
        let needed = MessageOptions {
            deprecated: options.deprecated,
            map_entry: options.map_entry,
            ..MessageOptions::default()
        };
        (needed != MessageOptions::default()).then_some(needed)
    });
    message.extension.clear();
    message.reserved_name.clear();
    message.reserved_range.clear();
    message.oneof_decl.iter_mut().for_each(|oneof| oneof.options = None);
    message.field.iter_mut().for_each(field);
    message.nested_type.iter_mut().for_each(self::message);
    message.enum_type.iter_mut().for_each(enumeration);
}

fn field(field: &mut FieldDescriptorProto) {
    // The default name.
    field.json_name = None;
    field.options = field.options.take().and_then(|options| {
        let needed = FieldOptions {
            deprecated: options.deprecated,
            packed: options.packed,
            ..FieldOptions::default()
        };
        (needed != FieldOptions::default()).then_some(needed)
    });
}

fn enumeration(enumeration: &mut EnumDescriptorProto) {
    enumeration.options = enumeration.options.take().and_then(|options| {
        let needed = EnumOptions {
            allow_alias: options.allow_alias,
            deprecated: options.deprecated,
            ..EnumOptions::default()
        };
        (needed != EnumOptions::default()).then_some(needed)
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
