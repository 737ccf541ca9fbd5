use std::{fmt::Write as _, process::ExitCode};

use clap::Args;
use serde::Serialize;

use super::{
    columns,
    fields::{Declared, declared},
    output_args::OutputArgs,
};
use mixer_adapter_host::handler::{AdapterInfo, Adapters};

/// List the adapters of this program with their templates and configuration
#[derive(Debug, Args)]
pub(super) struct List {
    /// Only these adapters
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Described<'a> {
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    templates: Vec<DescribedTemplate<'a>>,
    /// The configuration message, then the messages and enums of its fields.
    config: Vec<Declared>,
}

#[derive(Serialize)]
struct DescribedTemplate<'a> {
    name: &'a str,
    variety: String,
    method: &'a str,
}

impl List {
    pub(super) fn run(self, adapters: &Adapters) -> anyhow::Result<ExitCode> {
        let adapters = super::selected(adapters, &self.names)?;
        let described = adapters.into_iter().map(describe).collect::<Vec<_>>();
        self.output.print(&described, || described.iter().map(table).collect::<Vec<_>>().join("\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn describe(adapter: &AdapterInfo) -> Described<'_> {
    let templates = adapter.templates.iter().map(|template| DescribedTemplate {
        name: template.name,
        variety: template.variety.to_string(),
        method: template.method,
    });
    Described {
        name: adapter.name,
        description: adapter.description,
        version: adapter.version.map(|version| version.to_string()),
        templates: templates.collect(),
        config: declared(&adapter.config),
    }
}

fn table(adapter: &Described<'_>) -> String {
    let mut text = format!("{}: {}\n  templates\n", adapter.name, adapter.description);
    let templates = adapter.templates.iter().map(|template| [template.name, &template.variety]);
    text += &columns("    ", &templates.collect::<Vec<_>>());
    for (index, declared) in adapter.config.iter().enumerate() {
        let what = if index == 0 { "configuration " } else { "" };
        let _ = writeln!(text, "  {what}{}", declared.name);
        let fields = declared.fields.iter();
        let fields =
            fields.map(|field| [&field.name, &field.kind, field.label.as_deref().unwrap_or_default()]);
        text += &columns("    ", &fields.collect::<Vec<_>>());
        text += &columns("    ", &declared.values.iter().map(|value| [value.as_str()]).collect::<Vec<_>>());
        if declared.fields.is_empty() && declared.values.is_empty() {
            text.push_str("    no fields\n");
        }
    }
    text
}
