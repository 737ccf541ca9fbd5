//! Names of generated messages that would be taken twice.

use std::collections::HashSet;

use prost_reflect::FileDescriptor;

use super::{Variety, model::View};
use crate::{
    refusal::{Reason, Refusals},
    source_info::path,
};

/// Refuses messages, and the template itself, where a generated name is taken already. Names are compared as Rust would
/// spell them: without underscores, and in one case.
pub(crate) fn check(file: &FileDescriptor, interface: &str, variety: Variety, refusals: &mut Refusals) {
    let mut taken: HashSet<String> = ["InstanceMsg", "Type", "InstanceParam", "Self"].map(key).into();
    if variety.has_output() {
        taken.insert(key("OutputMsg"));
    }
    if !taken.insert(key(interface)) {
        refusals.add(&[path::FILE_PACKAGE], Reason::TemplateCollision { name: interface.to_owned() });
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
            refusals.add(message.path(), Reason::Collision { name });
        }
    }
}

fn key(name: &str) -> String {
    name.replace('_', "").to_lowercase()
}
