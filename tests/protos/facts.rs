//! What users of protos depend on, one fact a line: a line that is gone, or reads otherwise, breaks them.

use std::collections::BTreeSet;

use prost_reflect::{
    Cardinality, DescriptorPool, EnumDescriptor, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor,
    ServiceDescriptor,
};

/// The facts of all files of a set whose package is not Google's.
pub(crate) fn facts(pool: &DescriptorPool) -> BTreeSet<String> {
    let mut facts = BTreeSet::new();
    for file in pool.files().filter(|file| !is_googles(file)) {
        file.messages().for_each(|message| of_message(&message, &mut facts));
        file.enums().for_each(|of| of_enum(&of, &mut facts));
        file.services().for_each(|service| of_service(&service, &mut facts));
    }
    facts
}

pub(crate) fn is_googles(file: &FileDescriptor) -> bool {
    file.package_name().starts_with("google.")
}

fn of_message(message: &MessageDescriptor, facts: &mut BTreeSet<String>) {
    if message.is_map_entry() {
        return;
    }
    facts.insert(format!("message {}", message.full_name()));
    message.fields().for_each(|field| _ = facts.insert(of_field(&field)));
    message.child_messages().for_each(|child| of_message(&child, facts));
    message.child_enums().for_each(|child| of_enum(&child, facts));
}

fn of_field(field: &FieldDescriptor) -> String {
    let of = match field.cardinality() {
        _ if field.is_map() => String::new(),
        Cardinality::Repeated => "repeated ".to_owned(),
        Cardinality::Required => "required ".to_owned(),
        Cardinality::Optional => match field.containing_oneof() {
            Some(oneof) => format!("oneof {} ", oneof.name()),
            None => String::new(),
        },
    };
    format!("field {} = {}: {of}{}", field.full_name(), field.number(), of_kind(&field.kind()))
}

fn of_kind(kind: &Kind) -> String {
    match kind {
        Kind::Message(entry) if entry.is_map_entry() => {
            let of = |field: FieldDescriptor| of_kind(&field.kind());
            format!("map<{}, {}>", of(entry.map_entry_key_field()), of(entry.map_entry_value_field()))
        }
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(of) => of.full_name().to_owned(),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

fn of_enum(of: &EnumDescriptor, facts: &mut BTreeSet<String>) {
    facts.insert(format!("enum {}", of.full_name()));
    for value in of.values() {
        facts.insert(format!("value {}.{} = {}", of.full_name(), value.name(), value.number()));
    }
}

fn of_service(service: &ServiceDescriptor, facts: &mut BTreeSet<String>) {
    for method in service.methods() {
        let stream = |is: bool| if is { "stream " } else { "" };
        facts.insert(format!(
            "method /{}/{} ({}{}) returns ({}{})",
            service.full_name(),
            method.name(),
            stream(method.is_client_streaming()),
            method.input().full_name(),
            stream(method.is_server_streaming()),
            method.output().full_name(),
        ));
    }
}
