//! Validation of a template's file.

use prost_reflect::{DynamicMessage, FileDescriptor, MessageDescriptor, Syntax, Value};

use super::{
    Variety, collision, field,
    model::{Message, Model},
};
use crate::{
    Error,
    descriptor_set::with_imports,
    schema_error::SchemaError,
    schema_errors::SchemaErrors,
    source::Source,
    source_info::{comment, path},
};

/// The options of extensions.proto.
const VARIETY: &str = "istio.mixer.adapter.model.v1beta1.template_variety";
const NAME: &str = "istio.mixer.adapter.model.v1beta1.template_name";

pub(crate) fn read(source: &Source) -> Result<Model, Error> {
    let file = &source.file;
    let mut errors = SchemaErrors::of(source);
    if file.syntax() != Syntax::Proto3 {
        errors.add(&[path::FILE_SYNTAX], SchemaError::NotProto3);
    }
    let variety = variety(file, &mut errors);
    let names = names(file, &mut errors);
    messages_only(file, &mut errors);

    let (mut template, mut output, mut messages) = (None, None, Vec::new());
    for message in file.messages() {
        // `fields()` is ordered by number; generated fields have the order of the file, as from mixgen.
        let fields = message.descriptor_proto().field.iter();
        let fields = fields.filter_map(|field| message.get_field_by_name(field.name()));
        let read = Message {
            name: message.name().to_owned(),
            comment: comment(file.file_descriptor_proto(), message.path()).unwrap_or_default().to_owned(),
            fields: fields.filter_map(|field| field::read(&field, variety, &mut errors)).collect(),
        };
        match message.name() {
            "Template" => template = Some(read),
            "OutputTemplate" => output = Some((read, message)),
            _ => messages.push(read),
        }
    }
    if template.is_none() {
        errors.add(&[], SchemaError::NoTemplate);
    }
    match (variety, &output) {
        (Some(variety), None) if variety.has_output() => {
            errors.add(&[], SchemaError::NoOutputTemplate { variety });
        }
        (Some(variety), Some((_, message))) if !variety.has_output() => {
            errors.add(message.path(), SchemaError::UselessOutputTemplate { variety });
        }
        _ => {}
    }
    if let (Some(variety), Some(names)) = (variety, &names) {
        collision::check(file, &names.interface, variety, &mut errors);
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
    errors.or(model)
}

fn variety(file: &FileDescriptor, errors: &mut SchemaErrors<'_>) -> Option<Variety> {
    for (import, index) in file.dependencies().zip(0..) {
        let second = with_imports(&import).into_iter().find(|file| option(file, VARIETY).is_some());
        if let Some(second) = second {
            let import = second.name().to_owned();
            errors.add(&[path::FILE_DEPENDENCY, index], SchemaError::SecondVariety { import });
        }
    }
    let variety =
        option(file, VARIETY).and_then(|value| value.as_enum_number()).and_then(Variety::from_number);
    if variety.is_none() {
        errors.add(&[], SchemaError::NoVariety);
    }
    variety
}

struct Names {
    interface: String,
    name: String,
}

/// Returns the names of the template: from `template_name`, or else from the last part of the package. Either must be a
/// valid name.
fn names(file: &FileDescriptor, errors: &mut SchemaErrors<'_>) -> Option<Names> {
    let package = file.package_name();
    if package.is_empty() {
        errors.add(&[], SchemaError::NoPackage);
        return None;
    }
    let segment = package.rsplit('.').next().unwrap_or(package);
    if !is_name(segment) {
        errors.add(&[path::FILE_PACKAGE], SchemaError::PackageName { segment: segment.to_owned() });
    }
    let given = option(file, NAME).and_then(|value| value.as_str().map(str::to_owned));
    if let Some(name) = given.as_ref().filter(|name| !is_name(name)) {
        errors.add(&option_path(file, NAME), SchemaError::TemplateName { name: name.clone() });
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

/// Refuses other elements than messages, which would be dropped silently.
fn messages_only(file: &FileDescriptor, errors: &mut SchemaErrors<'_>) {
    for (index, other) in file.enums().enumerate() {
        not_a_message(&[path::FILE_ENUM, index as i32], "enum", other.name(), errors);
    }
    for (index, other) in file.services().enumerate() {
        not_a_message(&[path::FILE_SERVICE, index as i32], "service", other.name(), errors);
    }
    for (index, other) in file.extensions().enumerate() {
        not_a_message(&[path::FILE_EXTENSION, index as i32], "extension", other.name(), errors);
    }
    for message in file.messages() {
        nothing_nested(&message, errors);
    }
}

fn not_a_message(path: &[i32], kind: &'static str, name: &str, errors: &mut SchemaErrors<'_>) {
    errors.add(path, SchemaError::NotAMessage { kind, name: name.to_owned() });
}

fn nothing_nested(message: &MessageDescriptor, errors: &mut SchemaErrors<'_>) {
    for nested in message.child_messages().filter(|nested| !nested.is_map_entry()) {
        errors.add(nested.path(), SchemaError::Nested { name: nested.name().to_owned() });
    }
    for nested in message.child_enums() {
        errors.add(nested.path(), SchemaError::Nested { name: nested.name().to_owned() });
    }
}
