//! Detection of generated messages with the same name.

use std::collections::HashSet;

use prost_reflect::FileDescriptor;

use super::{Variety, model::View};
use crate::{schema_error::SchemaError, schema_errors::SchemaErrors, source_info::path};

/// Refuses messages, and the template itself, if a generated name is already used. Names are compared in Rust's spelling:
/// without underscores and ignoring case.
pub(crate) fn check(file: &FileDescriptor, interface: &str, variety: Variety, errors: &mut SchemaErrors<'_>) {
    let mut taken: HashSet<String> = ["InstanceMsg", "Type", "InstanceParam", "Self"].map(key).into();
    if variety.has_output() {
        taken.insert(key("OutputMsg"));
    }
    if !taken.insert(key(interface)) {
        errors.add(&[path::FILE_PACKAGE], SchemaError::TemplateCollision { name: interface.to_owned() });
    }
    for message in file.messages().filter(|m| !["Template", "OutputTemplate"].contains(&m.name())) {
        let mut collides = None;
        for view in [View::Instance, View::Type, View::Param] {
            let name = format!("{}{}", message.name(), view.suffix());
            if !taken.insert(key(&name)) {
                collides.get_or_insert(name);
            }
        }
        if let Some(name) = collides {
            errors.add(message.path(), SchemaError::Collision { name });
        }
    }
}

fn key(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}
