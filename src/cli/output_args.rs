//! `--output`: the format of a command's output.

use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::Value as Json;

/// The format of the output of a command.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct OutputArgs {
    /// Format of the output
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,

    /// The same as --output json
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
    /// The same as JSON in YAML
    Yaml,
}

impl OutputArgs {
    /// Prints a value for programs, or its text for people.
    pub(super) fn print(self, value: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        match self.data() {
            Some(data) => data.print(value),
            None => Ok(super::print(&text())?),
        }
    }

    /// Prints documents of YAML: for programs as data, several of them one by one.
    pub(super) fn print_documents(self, documents: &str) -> anyhow::Result<()> {
        let Some(data) = self.data() else { return Ok(super::print(documents)?) };
        match &serde_saphyr::from_multiple::<Json>(documents)?[..] {
            [value] => data.print(value),
            values => {
                let encoded = values.iter().map(|value| data.encode_one_of_many(value));
                Ok(super::print(&encoded.collect::<anyhow::Result<String>>()?)?)
            }
        }
    }

    /// The format for programs; `None` for text.
    pub(super) fn data(self) -> Option<DataFormat> {
        match (self.json, self.output) {
            (true, _) | (_, Format::Json) => Some(DataFormat::Json),
            (_, Format::Yaml) => Some(DataFormat::Yaml),
            (_, Format::Text) => None,
        }
    }
}

/// A format for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataFormat {
    Json,
    Yaml,
}

impl DataFormat {
    pub(super) fn print(self, value: &impl Serialize) -> anyhow::Result<()> {
        Ok(super::print(&self.encode(value)?)?)
    }

    pub(super) fn encode(self, value: &impl Serialize) -> anyhow::Result<String> {
        Ok(match self {
            Self::Json => serde_json::to_string_pretty(value)? + "\n",
            Self::Yaml => serde_saphyr::to_string(value)?,
        })
    }

    /// Encodes a value among others: a line of JSON, or a document of YAML.
    pub(super) fn encode_one_of_many(self, value: &impl Serialize) -> anyhow::Result<String> {
        Ok(match self {
            Self::Json => serde_json::to_string(value)? + "\n",
            Self::Yaml => format!("---\n{}", serde_saphyr::to_string(value)?),
        })
    }
}
