use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;

use super::{
    columns,
    output_args::OutputArgs,
    reference::{Catalogue, Item},
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
    config: DescribedConfig<'a>,
}

#[derive(Serialize)]
struct DescribedConfig<'a> {
    /// The full name of the message.
    message: &'a str,
    fields: Vec<Item>,
}

#[derive(Serialize)]
struct DescribedTemplate<'a> {
    name: &'a str,
    variety: String,
    method: &'a str,
}

impl List {
    pub(super) fn run(self, adapters: &Adapters) -> anyhow::Result<()> {
        let (selected, catalogue) = (super::selected(adapters, &self.names)?, Catalogue::new(adapters));
        let described: Vec<_> = selected.into_iter().map(|adapter| describe(adapter, &catalogue)).collect();
        self.output.print(&described, || described.iter().map(table).collect::<Vec<_>>().join("\n"))
    }
}

fn describe<'a>(adapter: &'a AdapterInfo, catalogue: &Catalogue<'_>) -> Described<'a> {
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
        config: DescribedConfig {
            message: adapter.config.full_name(),
            fields: catalogue.adapter(adapter).fields,
        },
    }
}

fn table(adapter: &Described<'_>) -> String {
    let mut text = format!("{}: {}\n  templates\n", adapter.name, adapter.description);
    let templates = adapter.templates.iter().map(|template| [template.name, &template.variety]);
    text += &columns("    ", &templates.collect::<Vec<_>>());
    let _ = writeln!(text, "  configuration {}", adapter.config.message);
    let mut rows = Vec::new();
    add_rows(&adapter.config.fields, "", &mut rows);
    if rows.is_empty() {
        text.push_str("    no fields\n");
    }
    let rows = rows.iter().map(|row| row.each_ref().map(String::as_str));
    text + &columns("    ", &rows.collect::<Vec<_>>())
}

/// Adds the name, the type and the values of each field, and of the fields within it.
fn add_rows(fields: &[Item], parent: &str, rows: &mut Vec<[String; 3]>) {
    for field in fields {
        let name = format!("{parent}{}", field.name);
        let values: Vec<&str> = field.values.iter().map(|value| value.name.as_str()).collect();
        rows.push([name.clone(), field.type_name.clone(), values.join(", ")]);
        add_rows(&field.fields, &format!("{name}."), rows);
    }
}
