//! `reference`: the elements of configurations, from the data that checks them.

mod item;
mod print;
mod schema;
mod topics;

use std::{collections::BTreeMap, ffi::OsStr};

use clap::{
    Arg, Args, Command, ValueEnum,
    builder::{PossibleValue, StringValueParser, TypedValueParser},
};

pub(super) use self::{
    item::Item,
    topics::{Catalogue, Topic},
};
use super::{UsageError, output_args::DataFormat};
use mixer_adapter_config::Kind;
use mixer_adapter_core::framework::suggest::suggestion;
use mixer_adapter_host::handler::Adapters;

/// Explain attributes, functions, templates, adapters and kinds: types, meanings, defaults and examples
#[derive(Debug, Args)]
pub(super) struct Reference {
    /// The topic, or a name to look up in all of them
    #[arg(value_name = "TOPIC", value_parser = SubjectParser)]
    subject: Option<String>,

    /// A name of the topic, with the path of a field behind a dot
    #[arg(value_name = "NAME[.FIELD]")]
    name: Option<String>,

    /// Format of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,

    /// The same as --output json
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

/// Parses any text, and has the topics among its possible values.
#[derive(Clone)]
struct SubjectParser;

impl TypedValueParser for SubjectParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Topic::ALL.into_iter().filter_map(|topic| topic.to_possible_value())))
    }
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
    pub(super) fn run(self, adapters: &Adapters) -> anyhow::Result<()> {
        let catalogue = Catalogue::new(adapters);
        let selection = Selection::of(self.subject, self.name, &catalogue)?;
        let text = match if self.json { Format::Json } else { self.output } {
            Format::Text => selection.encoded(None, &catalogue)?,
            Format::Json => selection.encoded(Some(DataFormat::Json), &catalogue)?,
            Format::Yaml => selection.encoded(Some(DataFormat::Yaml), &catalogue)?,
            Format::Markdown => selection.markdown(&catalogue)?,
            Format::Schema => selection.schema(&catalogue)?,
        };
        Ok(super::print(&text)?)
    }
}

/// The part of the reference that is shown.
struct Selection {
    topic: Option<Topic>,
    name: Option<String>,
}

impl Selection {
    fn of(
        subject: Option<String>,
        name: Option<String>,
        catalogue: &Catalogue<'_>,
    ) -> Result<Self, UsageError> {
        let Some(subject) = subject else { return Ok(Self { topic: None, name }) };
        match (Topic::from_str(&subject, false), name) {
            (Ok(topic), name) => Ok(Self { topic: Some(topic), name }),
            (Err(_), Some(_)) => Err(unknown(&subject)),
            (Err(_), None) => {
                let mut topics = Topic::ALL.into_iter();
                let topic = topics.find(|topic| find(*topic, &catalogue.items(*topic), &subject).is_ok());
                Ok(Self { topic: Some(topic.ok_or_else(|| unknown(&subject))?), name: Some(subject) })
            }
        }
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

    fn markdown(&self, catalogue: &Catalogue<'_>) -> anyhow::Result<String> {
        let topic = self.topic.ok_or_else(|| UsageError("--output markdown: name a topic".to_owned()))?;
        let mut items = catalogue.items(topic);
        if let Some(name) = &self.name {
            items = vec![find(topic, &items, name)?.clone()];
        }
        print::markdown(topic, &items)
    }

    fn schema(&self, catalogue: &Catalogue<'_>) -> anyhow::Result<String> {
        if self.topic != Some(Topic::Kinds) {
            return Err(UsageError("--output schema: only the topic `kinds` has schemas".to_owned()).into());
        }
        if let Some(name) = &self.name {
            find(Topic::Kinds, &catalogue.items(Topic::Kinds), name)?;
        }
        let kind = self.name.as_deref().map(Kind::from);
        DataFormat::Json.encode(&schema::of(kind.as_ref(), catalogue))
    }
}

fn unknown(topic: &str) -> UsageError {
    let help = suggestion(topic, &Topic::NAMES);
    usage!("no topic has `{topic}`, which is not a topic either; {help}")
}

/// The item with a name, or a field of it: `handler.connection.timeout`. Names may have dots.
fn find<'a>(topic: Topic, items: &'a [Item], name: &str) -> Result<&'a Item, UsageError> {
    let Some(item) = items
        .iter()
        .filter(|item| {
            name.strip_prefix(&item.name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
        .max_by_key(|item| item.name.len())
    else {
        let known: Vec<&str> = items.iter().map(|item| item.name.as_str()).collect();
        return Err(usage!("unknown {} `{name}`; {}", topic.singular(), suggestion(name, &known)));
    };
    let path: Vec<&str> = name[item.name.len()..].split('.').filter(|part| !part.is_empty()).collect();
    item.at(&path).map_err(|(parent, part)| {
        let known: Vec<&str> =
            parent.fields.iter().chain(&parent.output).map(|field| field.name.as_str()).collect();
        if known.is_empty() {
            usage!("`{}` has no fields", parent.name)
        } else {
            usage!("`{}` has no field `{part}`; {}", parent.name, suggestion(part, &known))
        }
    })
}
