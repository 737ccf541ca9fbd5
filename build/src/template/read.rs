//! From the author's file to the model: what a file as a whole must have.

use prost_reflect::{DynamicMessage, FileDescriptor, MessageDescriptor, Syntax, Value};

use super::{
    Variety, collision, field,
    model::{Message, Model},
};
use crate::{
    Error,
    descriptor_set::with_imports,
    refusal::{Reason, Refusals},
    source::Source,
    source_info::{comment, path},
};

/// The options of extensions.proto.
const VARIETY: &str = "istio.mixer.adapter.model.v1beta1.template_variety";
const NAME: &str = "istio.mixer.adapter.model.v1beta1.template_name";

pub(crate) fn read(source: &Source) -> Result<Model, Error> {
    let file = &source.file;
    let mut refusals = Refusals::of(source);
    if file.syntax() != Syntax::Proto3 {
        refusals.add(&[path::FILE_SYNTAX], Reason::NotProto3);
    }
    let variety = variety(file, &mut refusals);
    let names = names(file, &mut refusals);
    messages_only(file, &mut refusals);

    let (mut template, mut output, mut messages) = (None, None, Vec::new());
    for message in file.messages() {
        // `fields()` goes by number; generated fields come in the order of the file, as mixgen's do.
        let fields = message.descriptor_proto().field.iter();
        let fields = fields.filter_map(|field| message.get_field_by_name(field.name()));
        let read = Message {
            name: message.name().to_owned(),
            comment: comment(file.file_descriptor_proto(), message.path()).unwrap_or_default().to_owned(),
            fields: fields.filter_map(|field| field::read(&field, variety, &mut refusals)).collect(),
        };
        match message.name() {
            "Template" => template = Some(read),
            "OutputTemplate" => output = Some((read, message)),
            _ => messages.push(read),
        }
    }
    if template.is_none() {
        refusals.add(&[], Reason::NoTemplate);
    }
    match (variety, &output) {
        (Some(variety), None) if variety.has_output() => {
            refusals.add(&[], Reason::NoOutputTemplate { variety });
        }
        (Some(variety), Some((_, message))) if !variety.has_output() => {
            refusals.add(message.path(), Reason::UselessOutputTemplate { variety });
        }
        _ => {}
    }
    if let (Some(variety), Some(names)) = (variety, &names) {
        collision::check(file, &names.interface, variety, &mut refusals);
    }
    let model = variety.zip(names).zip(template).map(|((variety, names), template)| Model {
        package: file.package_name().to_lowercase(),
        interface: names.interface,
        name: names.name,
        variety,
        template,
        output: output.map(|(read, _)| read),
        messages,
    });
    refusals.or(model)
}

fn variety(file: &FileDescriptor, refusals: &mut Refusals) -> Option<Variety> {
    for (import, index) in file.dependencies().zip(0..) {
        let second = with_imports(&import).into_iter().find(|file| option(file, VARIETY).is_some());
        if let Some(second) = second {
            let import = second.name().to_owned();
            refusals.add(&[path::FILE_DEPENDENCY, index], Reason::SecondVariety { import });
        }
    }
    let variety =
        option(file, VARIETY).and_then(|value| value.as_enum_number()).and_then(Variety::from_number);
    if variety.is_none() {
        refusals.add(&[], Reason::NoVariety);
    }
    variety
}

struct Names {
    interface: String,
    name: String,
}

/// The last part of the package names the template, unless `template_name` does; the former must be a name anyway.
fn names(file: &FileDescriptor, refusals: &mut Refusals) -> Option<Names> {
    let package = file.package_name();
    if package.is_empty() {
        refusals.add(&[], Reason::NoPackage);
        return None;
    }
    let segment = package.rsplit('.').next().unwrap_or(package);
    if !is_name(segment) {
        refusals.add(&[path::FILE_PACKAGE], Reason::PackageName { segment: segment.to_owned() });
    }
    let given = option(file, NAME).and_then(|value| value.as_str().map(str::to_owned));
    if let Some(name) = given.as_ref().filter(|name| !is_name(name)) {
        refusals.add(&option_path(file, NAME), Reason::TemplateName { name: name.clone() });
    }
    let name = given.as_deref().unwrap_or(segment);
    let (first, rest) = name.split_at_checked(1)?;
    Some(Names { interface: first.to_uppercase() + rest, name: name.to_lowercase() })
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

fn option(file: &FileDescriptor, name: &str) -> Option<Value> {
    let extension = file.parent_pool().get_extension_by_name(name)?;
    let options: DynamicMessage = file.options();
    options.has_extension(&extension).then(|| options.get_extension(&extension).into_owned())
}

fn option_path(file: &FileDescriptor, name: &str) -> Vec<i32> {
    let number = file.parent_pool().get_extension_by_name(name).map(|extension| extension.number() as i32);
    [path::FILE_OPTIONS].into_iter().chain(number).collect()
}

/// Everything else would be dropped without a word.
fn messages_only(file: &FileDescriptor, refusals: &mut Refusals) {
    for (index, other) in file.enums().enumerate() {
        not_a_message(&[path::FILE_ENUM, index as i32], "enum", other.name(), refusals);
    }
    for (index, other) in file.services().enumerate() {
        not_a_message(&[path::FILE_SERVICE, index as i32], "service", other.name(), refusals);
    }
    for (index, other) in file.extensions().enumerate() {
        not_a_message(&[path::FILE_EXTENSION, index as i32], "extension", other.name(), refusals);
    }
    for message in file.messages() {
        nothing_nested(&message, refusals);
    }
}

fn not_a_message(path: &[i32], kind: &'static str, name: &str, refusals: &mut Refusals) {
    refusals.add(path, Reason::NotAMessage { kind, name: name.to_owned() });
}

fn nothing_nested(message: &MessageDescriptor, refusals: &mut Refusals) {
    for nested in message.child_messages().filter(|nested| !nested.is_map_entry()) {
        refusals.add(nested.path(), Reason::Nested { name: nested.name().to_owned() });
    }
    for nested in message.child_enums() {
        refusals.add(nested.path(), Reason::Nested { name: nested.name().to_owned() });
    }
}
