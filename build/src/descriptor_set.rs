//! Encoding of `FileDescriptorSet`s for resources: without comments, with all options.
//!
//! Uses dynamic messages, because prost-types drops the options template_variety and template_name
//! (docs/behaviour/libraries.md#options-in-prost-types).

use prost::Message;
use prost_reflect::{DynamicMessage, FileDescriptor, ReflectMessage, Value};
use prost_types::{FileDescriptorProto, FileDescriptorSet};

/// Encodes a set of files in the given order, in which each file must follow its imports.
pub(crate) fn encode(files: impl IntoIterator<Item = FileDescriptor>) -> Vec<u8> {
    let mut set = DynamicMessage::new(FileDescriptorSet::default().descriptor());
    let files = files.into_iter().map(|file| Value::Message(bare(&file))).collect();
    set.set_field_by_name("file", Value::List(files));
    set.encode_to_vec()
}

/// Returns a file with all its imports, each file after its own imports.
pub(crate) fn with_imports(file: &FileDescriptor) -> Vec<FileDescriptor> {
    let mut files = Vec::new();
    collect(file, &mut files);
    files
}

fn collect(file: &FileDescriptor, files: &mut Vec<FileDescriptor>) {
    if files.contains(file) {
        return;
    }
    for import in file.dependencies() {
        collect(&import, files);
    }
    files.push(file.clone());
}

fn bare(file: &FileDescriptor) -> DynamicMessage {
    let mut bare = DynamicMessage::new(FileDescriptorProto::default().descriptor());
    if let Err(error) = bare.merge(&*file.encode_to_vec()) {
        unreachable!("a file of a pool is a valid descriptor: {error}");
    }
    bare.clear_field_by_name("source_code_info");
    for message in messages(&mut bare, "message_type") {
        drop_synthetic_oneofs(message);
    }
    bare
}

/// Makes `optional` fields plain: Mixer's encoder predates them and takes each for a oneof.
fn drop_synthetic_oneofs(message: &mut DynamicMessage) {
    let mut synthetic = 0;
    for field in messages(message, "field") {
        if field.has_field_by_name("proto3_optional") {
            field.clear_field_by_name("proto3_optional");
            field.clear_field_by_name("oneof_index");
            synthetic += 1;
        }
    }
    // Synthetic oneofs follow all others (as descriptor.proto requires), so no index changes.
    if let Some(Value::List(oneofs)) = message.get_field_by_name_mut("oneof_decl") {
        oneofs.truncate(oneofs.len() - synthetic);
    }
    for nested in messages(message, "nested_type") {
        drop_synthetic_oneofs(nested);
    }
}

fn messages<'a>(parent: &'a mut DynamicMessage, field: &str) -> impl Iterator<Item = &'a mut DynamicMessage> {
    let list = parent.get_field_by_name_mut(field).and_then(Value::as_list_mut);
    list.into_iter().flatten().filter_map(Value::as_message_mut)
}
