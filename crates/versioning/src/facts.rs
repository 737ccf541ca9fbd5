//! The facts that users of protos depend on, one a line: a removed or changed line breaks them.

use std::collections::{BTreeMap, BTreeSet};

use prost_reflect::{
    Cardinality, DynamicMessage, EnumDescriptor, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor,
    ReflectMessage as _, ServiceDescriptor,
};
use sha2::{Digest as _, Sha256};

use crate::{
    locations::Locations,
    options::{History, Role, STUBS, scalar_text, settings},
    set::{ProtoSet, is_googles},
    version::{PackageVersion, SemanticVersion, Stability},
};

/// One fact: its value, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fact {
    pub(crate) value: String,
    pub(crate) file: String,
    /// From 1; 0 if it is not known.
    pub(crate) line: u32,
    /// Whether it may change: in an alpha package, or in a draft.
    pub(crate) free: bool,
}

/// Splits the key of a fact into kind, element and the rest.
pub(crate) fn parts(key: &str) -> (&str, &str, &str) {
    let (kind, rest) = key.split_once(' ').unwrap_or((key, ""));
    let (element, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    (kind, element, rest)
}

/// A file with its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileFacts {
    pub(crate) package: String,
    pub(crate) syntax: String,
    /// The version that the file states.
    pub(crate) version: Option<SemanticVersion>,
    /// The hash of all facts and notes of the file, without comments, white space and order.
    pub(crate) hash: String,
    /// Whether it is a template or the configuration of an adapter, whose package has no version by Mixer's rules.
    pub(crate) mixers: bool,
}

/// A use of a message or enum of another package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// The field or method.
    pub(crate) element: String,
    pub(crate) package: String,
    /// The message or enum, and its package.
    pub(crate) target: String,
    pub(crate) target_package: String,
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) free: bool,
}

/// The facts of a set, by their keys: `field a.v1.M.n`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) facts: BTreeMap<String, Fact>,
    pub(crate) files: BTreeMap<String, FileFacts>,
    pub(crate) references: Vec<Reference>,
    /// The packages of all files, also of imports, except Google's.
    pub(crate) packages: BTreeSet<String>,
}

impl Facts {
    /// Reads the facts of a set. The packages of `held` do not change, even if they are alpha.
    pub(crate) fn of(set: &ProtoSet, held: &BTreeSet<String>) -> Self {
        let mut facts = Self::default();
        let packages = set.pool().files().map(|file| file.package_name().to_owned());
        facts.packages = packages.filter(|package| !is_googles(package)).collect();
        for file in set.files().filter(|file| !is_googles(file.package_name())) {
            Reader::read(&file, held, &mut facts);
        }
        // Imports refer to packages, too.
        let checked: BTreeSet<String> = facts.files.keys().cloned().collect();
        let imports = set.pool().files().filter(|file| !checked.contains(file.name()));
        for file in imports.filter(|file| !is_googles(file.package_name())) {
            let mut others = Self::default();
            Reader::read(&file, held, &mut others);
            facts.references.extend(others.references);
        }
        facts
    }

    /// Returns a fact that users depend on.
    pub(crate) fn published(&self, key: &str) -> Option<&Fact> {
        self.facts.get(key).filter(|fact| !fact.free)
    }
}

/// Reads the facts of one file.
struct Reader<'a> {
    facts: &'a mut Facts,
    locations: Locations,
    file: String,
    package: String,
    /// The lines of the hash.
    lines: BTreeSet<String>,
}

impl Reader<'_> {
    fn read(file: &FileDescriptor, held: &BTreeSet<String>, facts: &mut Facts) {
        let proto = file.file_descriptor_proto();
        let options = file.options();
        let history = History::of(&options);
        let mut reader = Reader {
            facts,
            locations: Locations::of(proto),
            file: file.name().to_owned(),
            package: file.package_name().to_owned(),
            lines: BTreeSet::new(),
        };
        let alpha = PackageVersion::of(file.package_name())
            .is_some_and(|version| version.stability == Stability::Alpha);
        let alpha = alpha && !held.contains(file.package_name());
        let free = alpha || history.draft || reader.locations.is_draft_file();
        for name in STUBS.iter().filter(|name| options.has_field_by_name(name)) {
            if let Some(field) = options.descriptor().get_field_by_name(name) {
                let value = scalar_text(&options.get_field(&field), &field.kind());
                let key = format!("option {} {name}", reader.file);
                reader.add(key, value, &[8], free);
            }
        }
        reader.notes(&reader.file.clone(), &options, &[8], free);
        file.messages().for_each(|message| reader.message(&message, true, free));
        file.enums().for_each(|of| reader.enumeration(&of, true, free));
        file.extensions().for_each(|extension| {
            let value = format!("{} in {}", extension.number(), extension.containing_message().full_name());
            reader.add(format!("extension {}", extension.full_name()), value, extension.path(), free);
        });
        file.services().for_each(|service| reader.service(&service, free));
        let syntax = format!("{:?}", file.syntax()).to_lowercase();
        reader.lines.insert(format!("file {} {} {syntax}", reader.file, reader.package));
        let mut hash = Sha256::new();
        for line in &reader.lines {
            hash.update(line.as_bytes());
            hash.update(b"\n");
        }
        let hash: String = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let mixers = is_mixers(file, &options);
        let Reader { file: name, package, .. } = reader;
        facts.files.insert(name, FileFacts { package, syntax, version: history.version, hash, mixers });
    }

    fn add(&mut self, key: String, value: String, path: &[i32], free: bool) {
        self.lines.insert(line(&key, &value));
        let fact = Fact { value, file: self.file.clone(), line: self.locations.line(path), free };
        self.facts.facts.insert(key, fact);
    }

    /// Adds the facts of the options of an element, and returns whether the element is a draft.
    fn options(&mut self, element: &str, options: &DynamicMessage, path: &[i32], free: bool) -> bool {
        let history = History::of(options);
        let free = free || history.draft || self.locations.is_draft(path);
        self.notes(element, options, path, free);
        if history.deprecated {
            let value = history.deprecated_since.map(|version| version.to_string()).unwrap_or_default();
            self.add(format!("deprecated {element}"), value, path, free);
        }
        free
    }

    fn notes(&mut self, element: &str, options: &DynamicMessage, path: &[i32], free: bool) {
        for setting in settings(options) {
            let kind = match setting.role {
                Role::Rule => "rule",
                Role::Contract => "contract",
                Role::Note => {
                    self.lines.insert(format!("note {element} {} = {}", setting.name, setting.value));
                    continue;
                }
            };
            self.add(format!("{kind} {element} {}", setting.name), setting.value, path, free);
        }
    }

    fn message(&mut self, message: &MessageDescriptor, top: bool, free: bool) {
        if message.is_map_entry() {
            return;
        }
        let (name, path) = (message.full_name(), message.path());
        let free = self.options(name, &message.options(), path, free);
        self.add(format!("message {name}"), self.place(top), path, free);
        for range in message.reserved_ranges() {
            self.add(reserved(name, range.start, range.end - 1), String::new(), path, free);
        }
        for reserved in message.reserved_names() {
            self.add(format!("reserved {name} {reserved:?}"), String::new(), path, free);
        }
        for oneof in message.oneofs() {
            self.options(oneof.full_name(), &oneof.options(), oneof.path(), free);
        }
        message.fields().for_each(|field| self.field(&field, free));
        message.child_messages().for_each(|child| self.message(&child, false, free));
        message.child_enums().for_each(|child| self.enumeration(&child, false, free));
    }

    fn field(&mut self, field: &FieldDescriptor, free: bool) {
        let (name, path) = (field.full_name(), field.path());
        let free = self.options(name, &field.options(), path, free);
        self.add(format!("field {name}"), format!("{}: {}", field.number(), type_of(field)), path, free);
        if field.json_name() != lower_camel(field.name()) {
            self.add(format!("json {name}"), format!("{:?}", field.json_name()), path, free);
        }
        if field.field_descriptor_proto().default_value.is_some() {
            let value = scalar_text(&field.default_value(), &field.kind());
            self.add(format!("default {name}"), value, path, free);
        }
        self.refer(name, &field.kind(), path, free);
    }

    fn refer(&mut self, element: &str, kind: &Kind, path: &[i32], free: bool) {
        let (target, package) = match kind {
            Kind::Message(entry) if entry.is_map_entry() => {
                return self.refer(element, &entry.map_entry_value_field().kind(), path, free);
            }
            Kind::Message(message) => (message.full_name().to_owned(), message.package_name().to_owned()),
            Kind::Enum(of) => (of.full_name().to_owned(), of.package_name().to_owned()),
            _ => return,
        };
        if package != self.package && !is_googles(&package) {
            self.facts.references.push(Reference {
                element: element.to_owned(),
                package: self.package.clone(),
                target,
                target_package: package,
                file: self.file.clone(),
                line: self.locations.line(path),
                free,
            });
        }
    }

    fn enumeration(&mut self, of: &EnumDescriptor, top: bool, free: bool) {
        let (name, path) = (of.full_name(), of.path());
        let free = self.options(name, &of.options(), path, free);
        self.add(format!("enum {name}"), self.place(top), path, free);
        self.add(format!("default {name}"), of.default_value().name().to_owned(), path, free);
        for range in of.reserved_ranges() {
            self.add(reserved(name, *range.start(), *range.end()), String::new(), path, free);
        }
        for reserved in of.reserved_names() {
            self.add(format!("reserved {name} {reserved:?}"), String::new(), path, free);
        }
        for value in of.values() {
            let element = format!("{name}.{}", value.name());
            let free = self.options(&element, &value.options(), value.path(), free);
            self.add(format!("value {element}"), value.number().to_string(), value.path(), free);
        }
    }

    fn service(&mut self, service: &ServiceDescriptor, free: bool) {
        let (name, path) = (service.full_name(), service.path());
        let free = self.options(name, &service.options(), path, free);
        self.add(format!("service {name}"), self.place(true), path, free);
        for method in service.methods() {
            let element = format!("{name}.{}", method.name());
            let free = self.options(&element, &method.options(), method.path(), free);
            let value = format!(
                "({}{}) returns ({}{})",
                if method.is_client_streaming() { "stream " } else { "" },
                method.input().full_name(),
                if method.is_server_streaming() { "stream " } else { "" },
                method.output().full_name(),
            );
            self.add(format!("method {element}"), value, method.path(), free);
            self.refer(&element, &Kind::Message(method.input()), method.path(), free);
            self.refer(&element, &Kind::Message(method.output()), method.path(), free);
        }
    }

    /// The file that users import for something at the top of it.
    fn place(&self, top: bool) -> String {
        if top { self.file.clone() } else { String::new() }
    }
}

/// Returns the key of a reserved range.
fn reserved<N: std::fmt::Display + PartialEq>(element: &str, first: N, last: N) -> String {
    if first == last {
        format!("reserved {element} {first}")
    } else {
        format!("reserved {element} {first} to {last}")
    }
}

/// Returns a fact as a line.
pub(crate) fn line(key: &str, value: &str) -> String {
    if value.is_empty() { key.to_owned() } else { format!("{key} = {value}") }
}

fn type_of(field: &FieldDescriptor) -> String {
    let label = match field.cardinality() {
        _ if field.is_map() => String::new(),
        Cardinality::Repeated => "repeated ".to_owned(),
        Cardinality::Required => "required ".to_owned(),
        Cardinality::Optional => match field.containing_oneof() {
            Some(oneof) if oneof.is_synthetic() => "optional ".to_owned(),
            Some(oneof) => format!("oneof {} ", oneof.name()),
            None => String::new(),
        },
    };
    format!("{label}{}", kind_name(&field.kind()))
}

fn kind_name(kind: &Kind) -> String {
    match kind {
        Kind::Message(entry) if entry.is_map_entry() => {
            let [key, value] = [entry.map_entry_key_field(), entry.map_entry_value_field()]
                .map(|field| kind_name(&field.kind()));
            format!("map<{key}, {value}>")
        }
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(of) => of.full_name().to_owned(),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

/// Returns the JSON name that a field has unless it states another, as protoc derives it.
fn lower_camel(name: &str) -> String {
    let mut upper = false;
    let mut camel = String::with_capacity(name.len());
    for letter in name.chars() {
        match letter {
            '_' => upper = true,
            _ if upper => {
                camel.push(letter.to_ascii_uppercase());
                upper = false;
            }
            _ => camel.push(letter),
        }
    }
    camel
}

/// Whether a file is a template of Mixer or the configuration of an adapter, by Mixer's rules.
fn is_mixers(file: &FileDescriptor, options: &DynamicMessage) -> bool {
    options.extensions().any(|(extension, _)| {
        extension.full_name().starts_with("istio.mixer.adapter.model.v1beta1.template_")
    }) || file.messages().any(|message| message.name() == "Params")
}
