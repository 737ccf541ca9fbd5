//! Compiles `descriptors/istio.txt` to `descriptors/istio.binpb`, and tests that the latter is current (`cargo xtask generate` writes it).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use prost::Message as _;
use prost_reflect::{
    DescriptorPool, MessageDescriptor,
    prost_types::{
        DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FieldOptions,
        FileDescriptorProto, FileDescriptorSet, MessageOptions, OneofDescriptorProto,
        field_descriptor_proto::{Label, Type},
    },
};

use mixer_adapter_config::Collection;

const FACTS: &str = include_str!("../../descriptors/istio.txt");

/// The messages of Istio's kinds.
fn istios() -> impl Iterator<Item = &'static str> {
    Collection::istio().filter_map(|collection| collection.message())
}

#[test]
fn the_descriptors_of_istio_are_current() {
    let compiled = compile(FACTS);
    if std::env::var_os("UPDATE_ISTIO_DESCRIPTORS").is_some_and(|update| update == "1") {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("descriptors/istio.binpb"), &compiled).unwrap();
    } else {
        assert!(
            compiled == include_bytes!("../../descriptors/istio.binpb"),
            "written by `cargo xtask generate`"
        );
    }
}

/// Istio added these kinds in later releases.
#[test]
fn every_kind_of_istio_1_1_to_1_7_has_its_message() {
    let pool = DescriptorPool::decode(&*compile(FACTS)).unwrap();
    let missing: Vec<_> = istios().filter(|name| pool.get_message_by_name(name).is_none()).collect();
    assert_eq!(
        missing,
        [
            "istio.networking.v1beta1.ProxyConfig",
            "istio.telemetry.v1alpha1.Telemetry",
            "istio.extensions.v1alpha1.WasmPlugin",
        ]
    );
}

/// A field that nothing reaches was written at the wrong place.
#[test]
fn every_message_belongs_to_a_kind() {
    let pool = DescriptorPool::decode(&*compile(FACTS)).unwrap();
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<MessageDescriptor> =
        istios().filter_map(|name| pool.get_message_by_name(name)).collect();
    while let Some(message) = waiting.pop() {
        if reached.insert(message.full_name().to_owned()) {
            waiting.extend(message.fields().filter_map(|field| field.kind().as_message().cloned()));
        }
    }
    let istios = pool.all_messages().filter(|message| message.full_name().starts_with("istio."));
    let unused: Vec<_> = istios.filter(|message| !reached.contains(message.full_name())).collect();
    assert!(unused.is_empty(), "{unused:?}");
}

/// A message or an enum of the facts, by its full name.
enum Definition<'a> {
    Message(Vec<&'a str>),
    Enum(Vec<&'a str>),
}

type Definitions<'a> = BTreeMap<String, Definition<'a>>;

fn compile(facts: &str) -> Vec<u8> {
    let mut packages: BTreeMap<&str, Definitions<'_>> = BTreeMap::new();
    let (mut package, mut name) = ("", String::new());
    for line in facts.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let definitions = packages.entry(package).or_default();
        match line.split_once(' ').unwrap() {
            ("", entry) => match definitions.get_mut(&name).unwrap() {
                Definition::Message(entries) | Definition::Enum(entries) => entries.push(entry.trim()),
            },
            ("package", new) => package = new,
            (keyword, short) => {
                name = format!("{package}.{short}");
                let definition = match keyword {
                    "message" => Definition::Message(Vec::new()),
                    "enum" => Definition::Enum(Vec::new()),
                    other => panic!("{other}"),
                };
                assert!(definitions.insert(name.clone(), definition).is_none(), "{name} is defined twice");
            }
        }
    }
    packages.remove("");
    let all: BTreeMap<&str, &Definition<'_>> =
        packages.values().flatten().map(|(name, definition)| (name.as_str(), definition)).collect();
    let own = packages.iter().map(|(package, definitions)| FileDescriptorProto {
        name: Some(file(package)),
        package: Some((*package).to_owned()),
        dependency: imports(package, &packages),
        message_type: messages(package, definitions, &all),
        enum_type: enums(package, definitions),
        syntax: Some("proto3".to_owned()),
        ..FileDescriptorProto::default()
    });
    let global = DescriptorPool::global();
    let googles = GOOGLES.iter().map(|(_, file)| global.get_file_by_name(file).unwrap());
    let googles: BTreeMap<_, _> =
        googles.map(|file| (file.name().to_owned(), file.file_descriptor_proto().clone())).collect();
    FileDescriptorSet { file: googles.into_values().chain(own).collect() }.encode_to_vec()
}

/// The messages of `google.protobuf` in the facts, and their files.
const GOOGLES: [(&str, &str); 5] = [
    ("google.protobuf.BoolValue", "google/protobuf/wrappers.proto"),
    ("google.protobuf.Duration", "google/protobuf/duration.proto"),
    ("google.protobuf.Struct", "google/protobuf/struct.proto"),
    ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
    ("google.protobuf.UInt32Value", "google/protobuf/wrappers.proto"),
];

/// The name of the file that has a package.
fn file(package: &str) -> String {
    format!("{}.proto", package.replace('.', "/"))
}

/// Returns the files that a package refers to by full names.
fn imports(package: &str, packages: &BTreeMap<&str, Definitions<'_>>) -> Vec<String> {
    let mut files = BTreeSet::new();
    let words = packages[package].values().filter_map(|definition| match definition {
        Definition::Message(fields) => Some(fields.iter().flat_map(|field| field.split(' '))),
        Definition::Enum(_) => None,
    });
    for word in words.flatten() {
        files.extend(GOOGLES.iter().find(|(name, _)| *name == word).map(|(_, file)| (*file).to_owned()));
        let other = packages.iter().find(|(_, definitions)| definitions.contains_key(word));
        files.extend(other.map(|(package, _)| file(package)));
    }
    files.into_iter().collect()
}

/// The definitions that are directly inside of that scope, with their short names.
fn inside<'a, 'b>(
    scope: &'b str,
    definitions: &'b Definitions<'a>,
) -> impl Iterator<Item = (&'b str, &'b str, &'b Definition<'a>)> {
    definitions.iter().filter_map(move |(name, definition)| {
        let short = name.strip_prefix(scope)?.strip_prefix('.')?;
        (!short.contains('.')).then_some((name.as_str(), short, definition))
    })
}

fn messages(
    scope: &str,
    definitions: &Definitions<'_>,
    all: &BTreeMap<&str, &Definition<'_>>,
) -> Vec<DescriptorProto> {
    inside(scope, definitions)
        .filter_map(|(name, short, definition)| {
            let Definition::Message(fields) = definition else { return None };
            let mut message = DescriptorProto {
                name: Some(short.to_owned()),
                nested_type: messages(name, definitions, all),
                enum_type: enums(name, definitions),
                ..DescriptorProto::default()
            };
            fields.iter().for_each(|line| add_field(&mut message, name, line, all));
            Some(message)
        })
        .collect()
}

fn enums(scope: &str, definitions: &Definitions<'_>) -> Vec<EnumDescriptorProto> {
    let value = |line: &&str| {
        let (number, name) = line.split_once(' ').unwrap();
        EnumValueDescriptorProto {
            name: Some(name.to_owned()),
            number: Some(number.parse().unwrap()),
            options: None,
        }
    };
    inside(scope, definitions)
        .filter_map(|(_, short, definition)| match definition {
            Definition::Enum(values) => Some(EnumDescriptorProto {
                name: Some(short.to_owned()),
                value: values.iter().map(value).collect(),
                ..EnumDescriptorProto::default()
            }),
            Definition::Message(_) => None,
        })
        .collect()
}

/// Adds the field of a line, and for a map the message of its entries.
fn add_field(
    message: &mut DescriptorProto,
    full_name: &str,
    line: &str,
    all: &BTreeMap<&str, &Definition<'_>>,
) {
    let mut words = line.split(' ').peekable();
    let number = words.next().unwrap().parse().unwrap();
    let name = words.next().unwrap();
    let package = package_of(full_name, all);
    let mut field = match words.next().unwrap() {
        "map" => {
            let entry = format!("{}Entry", camel(name));
            let key = typed("key", 1, words.next().unwrap(), package, all);
            let value = typed("value", 2, words.next().unwrap(), package, all);
            message.nested_type.push(DescriptorProto {
                name: Some(entry.clone()),
                field: vec![key, value],
                options: Some(MessageOptions { map_entry: Some(true), ..MessageOptions::default() }),
                ..DescriptorProto::default()
            });
            let mut field = field(name, number, Type::Message, Some(format!(".{full_name}.{entry}")));
            field.set_label(Label::Repeated);
            field
        }
        kind => typed(name, number, kind, package, all),
    };
    while let Some(word) = words.next() {
        match word {
            "*" => field.set_label(Label::Repeated),
            "!" => {
                field.options = Some(FieldOptions { deprecated: Some(true), ..FieldOptions::default() });
            }
            "|" => {
                let oneof = Some(words.next().unwrap().to_owned());
                let place = message.oneof_decl.iter().position(|known| known.name == oneof);
                field.oneof_index = Some(place.unwrap_or(message.oneof_decl.len()) as i32);
                if place.is_none() {
                    message.oneof_decl.push(OneofDescriptorProto { name: oneof, options: None });
                }
            }
            other => panic!("{full_name}.{name}: {other}"),
        }
    }
    message.field.push(field);
}

/// The package of a definition: the longest prefix of its name that is not a definition itself.
fn package_of<'a>(name: &'a str, all: &BTreeMap<&str, &Definition<'_>>) -> &'a str {
    let (outer, _) = name.rsplit_once('.').unwrap();
    if all.contains_key(outer) { package_of(outer, all) } else { outer }
}

/// A field of that type: a scalar, a definition of the package or one by its full name.
fn typed(
    name: &str,
    number: i32,
    kind: &str,
    package: &str,
    all: &BTreeMap<&str, &Definition<'_>>,
) -> FieldDescriptorProto {
    let scalar = match kind {
        "bool" => Some(Type::Bool),
        "bytes" => Some(Type::Bytes),
        "double" => Some(Type::Double),
        "int32" => Some(Type::Int32),
        "int64" => Some(Type::Int64),
        "string" => Some(Type::String),
        "uint32" => Some(Type::Uint32),
        "uint64" => Some(Type::Uint64),
        _ => None,
    };
    if let Some(scalar) = scalar {
        return field(name, number, scalar, None);
    }
    let local = format!("{package}.{kind}");
    let full_name = if all.contains_key(&*local) { &local } else { kind };
    let kind = match all.get(full_name) {
        Some(Definition::Enum(_)) => Type::Enum,
        Some(Definition::Message(_)) => Type::Message,
        None if full_name.starts_with("google.protobuf.") => Type::Message,
        None => panic!("{name}: {full_name} is not defined"),
    };
    field(name, number, kind, Some(format!(".{full_name}")))
}

fn field(name: &str, number: i32, kind: Type, type_name: Option<String>) -> FieldDescriptorProto {
    let mut field = FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        type_name,
        ..FieldDescriptorProto::default()
    };
    field.set_type(kind);
    field.set_label(Label::Optional);
    field
}

fn camel(name: &str) -> String {
    name.split('_').map(|word| word[..1].to_uppercase() + &word[1..]).collect()
}
