//! `reference`: what can be written in a configuration, from the data that it is checked with.

mod item;
mod print;
mod schema;
mod topics;

use std::{collections::BTreeMap, process::ExitCode};

use clap::{Args, ValueEnum};

use self::{
    item::Item,
    topics::{Catalogue, Topic},
};
use super::{UsageError, output_args::DataFormat};
use mixer_adapter_config::Kind;
use mixer_adapter_core::framework::suggest::suggestion;
use mixer_adapter_host::handler::Adapters;

pub(super) const EXAMPLES: &str = "\
Examples:
  # the topics
  mixer-adapter reference
  # all attributes with type and meaning
  mixer-adapter reference attributes
  mixer-adapter reference attributes request.path
  mixer-adapter reference functions match
  mixer-adapter reference adapters memquota
  mixer-adapter reference kinds handler.connection.timeout
  mixer-adapter reference kinds -o schema > mixer-adapter.schema.json

A JSON Schema makes an editor with a YAML language server complete and check resources: write
  # yaml-language-server: $schema=mixer-adapter.schema.json
as the first line of a file, or associate the schema with a folder in the settings of the editor.";

/// Explain attributes, functions, templates, adapters and kinds: types, meanings, defaults and examples
#[derive(Debug, Args)]
pub(super) struct Reference {
    /// The topic
    #[arg(value_name = "TOPIC")]
    topic: Option<Topic>,

    /// One of its names, with the path of a field behind a dot
    #[arg(value_name = "NAME[.FIELD]")]
    name: Option<String>,

    /// Format of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "text", env = "MIXER_ADAPTER_OUTPUT")]
    output: Format,

    /// The same as --output json
    #[arg(long, env = "MIXER_ADAPTER_JSON", value_parser = super::value_parsers::switch(), conflicts_with = "output")]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// JSON, for programs
    Json,
    /// The same as JSON in YAML
    Yaml,
    /// A page of a topic
    Markdown,
    /// A JSON Schema of a kind, or of all kinds
    Schema,
}

impl Reference {
    pub(super) fn run(self, adapters: &Adapters) -> anyhow::Result<ExitCode> {
        let catalogue = Catalogue::new(adapters);
        let text = match if self.json { Format::Json } else { self.output } {
            Format::Text => self.encoded(None, &catalogue)?,
            Format::Json => self.encoded(Some(DataFormat::Json), &catalogue)?,
            Format::Yaml => self.encoded(Some(DataFormat::Yaml), &catalogue)?,
            Format::Markdown => self.markdown(&catalogue)?,
            Format::Schema => self.schema(&catalogue)?,
        };
        super::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    fn encoded(&self, data: Option<DataFormat>, catalogue: &Catalogue<'_>) -> anyhow::Result<String> {
        let Some(topic) = self.topic else {
            let topics = Topic::ALL.map(|topic| (topic, catalogue.items(topic)));
            let by_name: BTreeMap<_, _> = topics.iter().map(|(topic, items)| (topic.name(), items)).collect();
            return match data {
                Some(data) => data.encode(&by_name),
                None => Ok(print::overview(&topics)),
            };
        };
        let items = catalogue.items(topic);
        match (data, &self.name) {
            (Some(data), None) => data.encode(&items),
            (None, None) => Ok(print::list(&items)),
            (Some(data), Some(name)) => data.encode(find(topic, &items, name)?),
            (None, Some(name)) => Ok(print::item(name, find(topic, &items, name)?)),
        }
    }

    fn markdown(&self, catalogue: &Catalogue<'_>) -> Result<String, UsageError> {
        let topic = self.topic.ok_or_else(|| UsageError("--output markdown: name a topic".to_owned()))?;
        let mut items = catalogue.items(topic);
        if let Some(name) = &self.name {
            items = vec![find(topic, &items, name)?.clone()];
        }
        Ok(print::markdown(topic, &items))
    }

    fn schema(&self, catalogue: &Catalogue<'_>) -> anyhow::Result<String> {
        if self.topic != Some(Topic::Kinds) {
            return Err(UsageError("--output schema: only the topic `kinds` has schemas".to_owned()).into());
        }
        let kind = match &self.name {
            None => None,
            Some(name) => {
                find(Topic::Kinds, &catalogue.items(Topic::Kinds), name)?;
                Some(Kind::from(name.as_str()))
            }
        };
        DataFormat::Json.encode(&schema::of(kind.as_ref(), catalogue))
    }
}

/// The names of items with their types or meanings, for completions.
pub(super) struct Names {
    pub(super) adapters: Vec<(String, String)>,
    pub(super) templates: Vec<(String, String)>,
    pub(super) attributes: Vec<(String, String)>,
    /// Those of all topics.
    pub(super) all: Vec<(String, String)>,
}

/// Returns the names of all items.
pub(super) fn names(adapters: &Adapters) -> Names {
    let catalogue = Catalogue::new(adapters);
    let names = |topic| -> Vec<_> {
        catalogue.items(topic).into_iter().map(|item| (item.name, item.meaning)).collect()
    };
    Names {
        adapters: names(Topic::Adapters),
        templates: names(Topic::Templates),
        attributes: names(Topic::Attributes),
        all: Topic::ALL.into_iter().flat_map(names).collect(),
    }
}

/// The item with a name, or a field of it: `handler.connection.timeout`. Names may have dots.
fn find<'a>(topic: Topic, items: &'a [Item], name: &str) -> Result<&'a Item, UsageError> {
    let within = |item: &&Item| {
        name.strip_prefix(&item.name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let Some(item) = items.iter().filter(within).max_by_key(|item| item.name.len()) else {
        let known: Vec<&str> = items.iter().map(|item| item.name.as_str()).collect();
        return Err(UsageError(format!(
            "unknown {} `{name}`; {}",
            topic.singular(),
            suggestion(name, &known)
        )));
    };
    let path: Vec<&str> = name[item.name.len()..].split('.').filter(|part| !part.is_empty()).collect();
    item.at(&path).map_err(|(parent, part)| {
        let known: Vec<&str> =
            parent.fields.iter().chain(&parent.output).map(|field| field.name.as_str()).collect();
        match known.is_empty() {
            true => UsageError(format!("`{}` has no fields", parent.name)),
            false => {
                UsageError(format!("`{}` has no field `{part}`; {}", parent.name, suggestion(part, &known)))
            }
        }
    })
}
