//! The data of each topic, by which the program checks a configuration.

use std::{collections::BTreeMap, fmt::Write as _};

use clap::ValueEnum;

use super::item::{Comments, Item, Notation, fields};
use mixer_adapter_config::{Kind, Spec};
use mixer_adapter_core::{
    framework::dynamic::{DescriptorSet, DynamicTemplate},
    template::Variety,
    value::ValueType,
};
use mixer_adapter_engine::{attribute::standard_attributes, expression::functions};
use mixer_adapter_host::handler::{AdapterInfo, Adapters};
use mixer_adapter_templates::{STANDARD, STANDARD_COMMENTS};

/// A part of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Topic {
    /// The attributes that are declared without an attribute manifest
    Attributes,
    /// The functions and operators of expressions
    Functions,
    /// The templates: what an instance computes from the attributes of a request
    Templates,
    /// The adapters of this program, which handlers configure
    Adapters,
    /// The kinds of resources
    Kinds,
}

impl Topic {
    /// All topics.
    pub(in crate::cli) const ALL: [Self; 5] =
        [Self::Attributes, Self::Functions, Self::Templates, Self::Adapters, Self::Kinds];

    /// The names on the command line, in the order of [`ALL`](Self::ALL).
    pub(super) const NAMES: [&str; 5] = ["attributes", "functions", "templates", "adapters", "kinds"];

    /// The name on the command line.
    pub(super) fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns the name of a single item.
    pub(super) fn singular(self) -> &'static str {
        self.name().trim_end_matches('s')
    }

    /// A description of the topic.
    pub(super) fn about(self) -> String {
        self.to_possible_value()
            .and_then(|value| value.get_help().map(ToString::to_string))
            .unwrap_or_default()
    }
}

/// The adapters and templates of the program.
#[derive(Debug)]
pub(in crate::cli) struct Catalogue<'a> {
    pub(super) adapters: &'a Adapters,
    /// The templates of instances: the standard templates, and further templates of the adapters.
    pub(in crate::cli) templates: BTreeMap<String, DynamicTemplate>,
    pub(super) comments: Comments,
}

impl<'a> Catalogue<'a> {
    pub(in crate::cli) fn new(adapters: &'a Adapters) -> Self {
        let mut comments = Comments::default();
        let all =
            adapters.templates().map(|template| template.comments).chain(STANDARD_COMMENTS.iter().copied());
        let all = all.chain(adapters.iter().map(|adapter| adapter.config_comments));
        all.chain([mixer_adapter_config::proto::COMMENTS]).for_each(|list| comments.add(list));
        let served = adapters.templates().map(|template| (template.name, template.descriptor));
        let templates = STANDARD.iter().copied().chain(served).filter_map(|(name, descriptor)| {
            let set = DescriptorSet::decode(descriptor).ok()?;
            Some((name.to_owned(), DynamicTemplate::new(&set).ok()?))
        });
        Self { adapters, templates: templates.collect(), comments }
    }

    /// The items of a topic.
    pub(super) fn items(&self, topic: Topic) -> Vec<Item> {
        match topic {
            Topic::Attributes => attributes(),
            Topic::Functions => functions().map(function).collect(),
            Topic::Templates => self.templates.values().map(|template| self.template(template)).collect(),
            Topic::Adapters => self.adapters.iter().map(|adapter| self.adapter(adapter)).collect(),
            Topic::Kinds => Kind::ALL.iter().filter_map(|kind| self.kind(kind)).collect(),
        }
    }

    /// The names of the items of a topic, with their meanings.
    pub(in crate::cli) fn names(&self, topic: Topic) -> Vec<(String, String)> {
        self.items(topic).into_iter().map(|item| (item.name, item.meaning)).collect()
    }

    /// The item of a template.
    pub(in crate::cli) fn template(&self, template: &DynamicTemplate) -> Item {
        let mut fields = self::fields(template.instance(), Notation::Expressions, &self.comments);
        fields.retain(|field| field.name != "name");
        let output =
            template.output().map(|output| self::fields(output, Notation::Expressions, &self.comments));
        let output = output.unwrap_or_default();
        Item {
            name: template.name().to_owned(),
            type_name: template.variety().to_string(),
            meaning: self.comments.of(template.instance().full_name()),
            example: Some(instance_example(template, &fields, &output)),
            fields,
            output,
            ..Item::default()
        }
    }

    /// The item of an adapter.
    pub(in crate::cli) fn adapter(&self, adapter: &AdapterInfo) -> Item {
        let mut item = Item {
            name: adapter.name.to_owned(),
            meaning: adapter.description.to_owned(),
            templates: adapter.templates.iter().map(|template| template.name).collect(),
            fields: fields(&adapter.config, Notation::Json, &self.comments),
            example: Some(handler_example(adapter)),
            ..Item::default()
        };
        for declared in &adapter.settings {
            item.declare(&declared.field.split('.').collect::<Vec<_>>(), declared);
        }
        item
    }

    fn kind(&self, kind: &Kind) -> Option<Item> {
        let message = Spec::message(kind)?;
        let mut fields = fields(&message, Notation::Json, &self.comments);
        // The name of a resource is in its metadata.
        fields.retain(|field| field.name != "name" || *kind == Kind::AttributeManifest);
        Some(Item {
            name: kind.to_string(),
            meaning: self.comments.of(message.full_name()),
            fields,
            example: Some(example(kind)?.to_owned()),
            ..Item::default()
        })
    }
}

fn attributes() -> Vec<Item> {
    standard_attributes()
        .map(|attribute| Item {
            name: attribute.name.to_owned(),
            type_name: attribute.value_type.to_string(),
            meaning: format!("{}.", attribute.meaning),
            produced_by: Some(attribute.produced_by),
            example: Some(attribute_example(attribute.name, attribute.value_type)),
            ..Item::default()
        })
        .collect()
}

/// An expression that has a value for every request, where there is one for the type.
fn attribute_example(name: &str, value_type: ValueType) -> String {
    match value_type {
        ValueType::StringMap => format!(r#"{name}["key"] | """#),
        ValueType::Int64 => format!("{name} | 0"),
        ValueType::Double => format!("{name} | 0.0"),
        ValueType::Bool => format!("{name} | false"),
        ValueType::Duration => format!(r#"{name} | "0s""#),
        ValueType::IpAddress => format!(r#"{name} | ip("0.0.0.0")"#),
        ValueType::Timestamp => format!(r#"{name} | timestamp("1970-01-01T00:00:00Z")"#),
        _ => format!(r#"{name} | """#),
    }
}

fn function(function: mixer_adapter_engine::expression::FunctionReference) -> Item {
    Item {
        name: function.name.to_owned(),
        type_name: function.signature,
        meaning: function.meaning.to_owned(),
        example: Some(function.example.to_owned()),
        value: Some(function.value),
        ..Item::default()
    }
}

/// An instance with an expression for each field.
fn instance_example(template: &DynamicTemplate, fields: &[Item], output: &[Item]) -> String {
    let name = template.name();
    let params = if fields.is_empty() { " {}\n".to_owned() } else { format!("\n{}", expressions(fields, 4)) };
    let mut text = format!(
        "apiVersion: config.istio.io/v1alpha2\nkind: instance\nmetadata: {{name: my{name}, namespace: istio-system}}\n\
         spec:\n  compiledTemplate: {name}\n  params:{params}"
    );
    if template.variety() == Variety::AttributeGenerator
        && let Some(bound) = output.iter().find(|field| field.type_name == "STRING")
    {
        let _ = writeln!(text, "  attributeBindings:\n    source.name: output.{}", bound.name);
    }
    text
}

fn expressions(fields: &[Item], indent: usize) -> String {
    let mut text = String::new();
    for field in fields {
        let (map, value_type) = match field.type_name.strip_prefix("map of ") {
            Some(value_type) => (true, value_type),
            None => (false, field.type_name.as_str()),
        };
        let list = value_type.strip_prefix("list of ");
        let _ = write!(text, "{:indent$}{}:", "", field.name);
        match (map, list) {
            _ if !field.fields.is_empty() => {
                let _ = write!(text, "\n{}", expressions(&field.fields, indent + 2));
            }
            (true, _) => {
                let _ = writeln!(text, "\n{:indent$}  key: {}", "", expression_of(value_type));
            }
            (_, Some(value_type)) => {
                let _ = writeln!(text, " ['{}']", expression_of(value_type));
            }
            _ => {
                let _ = writeln!(text, " {}", expression_of(value_type));
            }
        }
    }
    text
}

/// An expression of a type.
fn expression_of(value_type: &str) -> &'static str {
    match ValueType::from_str_name(value_type) {
        Some(ValueType::Int64) => "request.size | 0",
        Some(ValueType::Double) => "0.5",
        Some(ValueType::Bool) => "connection.mtls | false",
        Some(ValueType::Duration) => r#"response.duration | "0s""#,
        Some(ValueType::Timestamp) => "context.time",
        Some(ValueType::IpAddress) => r#"source.ip | ip("0.0.0.0")"#,
        Some(ValueType::DnsName) => "dnsName(destination.service.host)",
        Some(ValueType::EmailAddress) => "email(request.auth.principal)",
        Some(ValueType::Uri) => "uri(request.path)",
        Some(ValueType::StringMap) => "source.labels",
        _ => r#"source.name | "unknown""#,
    }
}

fn handler_example(adapter: &AdapterInfo) -> String {
    let params = match adapter.example {
        "{}" => " {}\n".to_owned(),
        example => "\n".to_owned() + &example.lines().map(|line| format!("    {line}\n")).collect::<String>(),
    };
    let name = adapter.name;
    format!(
        "apiVersion: config.istio.io/v1alpha2\nkind: handler\nmetadata: {{name: my{name}, namespace: istio-system}}\n\
         spec:\n  compiledAdapter: {name}\n  params:{params}"
    )
}

/// A resource of a kind.
fn example(kind: &Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::AttributeManifest => include_str!("examples/attributemanifest.yaml"),
        Kind::Template => include_str!("examples/template.yaml"),
        Kind::Adapter => include_str!("examples/adapter.yaml"),
        Kind::Handler => include_str!("examples/handler.yaml"),
        Kind::Instance => include_str!("examples/instance.yaml"),
        Kind::Rule => include_str!("examples/rule.yaml"),
        _ => return None,
    })
}
