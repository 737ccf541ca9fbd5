//! The reference as text and as Markdown.

use std::fmt::Write as _;

use super::{item::Item, topics::Topic};
use crate::cli::{
    columns, program,
    template::{self, cell},
};
use serde_json::json;

/// The length of lines of text.
const WIDTH: usize = 100;

/// The topics with the number of their items.
pub(super) fn overview(topics: &[(Topic, Vec<Item>)]) -> String {
    let mut text = String::new();
    for (topic, items) in topics {
        let _ = writeln!(text, "{:<12}{:>3}  {}", topic.name(), items.len(), topic.about());
    }
    let program = program::name();
    let _ = writeln!(
        text,
        "\n{program} reference TOPIC lists the names of a topic, and reference TOPIC NAME shows one."
    );
    text
}

/// One line for each item.
pub(super) fn list(items: &[Item]) -> String {
    let rows = items.iter().map(|item| [&*item.name, &*item.type_name, &*item.meaning]);
    columns("", &rows.collect::<Vec<_>>())
}

/// All of one item. `name` is its path.
pub(super) fn item(name: &str, item: &Item) -> String {
    let mut text =
        if item.type_name.is_empty() { format!("{name}\n") } else { format!("{name}  {}\n", item.type_name) };
    wrap(&mut text, &item.meaning, 2);
    if let Some(produced_by) = item.produced_by {
        let _ = writeln!(text, "  Produced by: {produced_by}");
    }
    if !item.templates.is_empty() {
        let _ = writeln!(text, "  Templates: {}", item.templates.join(", "));
    }
    if let Some(default) = &item.default {
        let _ = writeln!(text, "  Default: {default}");
    }
    for (title, parts) in [("Values", &item.values), ("Fields", &item.fields), ("Output", &item.output)] {
        if !parts.is_empty() {
            let _ = writeln!(text, "\n{title}:");
            parts.iter().for_each(|part| field(&mut text, part, 2));
        }
    }
    if let Some(example) = &item.example {
        text.push_str("\nExample:\n");
        example.lines().for_each(|line| _ = writeln!(text, "{}", format!("  {line}").trim_end()));
    }
    if let Some(value) = item.value {
        let _ = writeln!(text, "  -> {value}");
    }
    text
}

fn field(text: &mut String, item: &Item, indent: usize) {
    let default = item.default.as_ref().map(|default| format!(" (default {default})")).unwrap_or_default();
    let line = format!("{:indent$}{}  {}{default}", "", item.name, item.type_name);
    let _ = writeln!(text, "{}", line.trim_end());
    wrap(text, &item.meaning, indent + 4);
    item.values.iter().chain(&item.fields).for_each(|part| field(text, part, indent + 2));
}

/// Appends a paragraph in lines.
fn wrap(text: &mut String, paragraph: &str, indent: usize) {
    let mut line = String::new();
    for word in paragraph.split_whitespace() {
        if !line.is_empty() && indent + line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(text, "{:indent$}{line}", "");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        let _ = writeln!(text, "{:indent$}{line}", "");
    }
}

/// A page of a topic.
pub(super) fn markdown(topic: Topic, items: &[Item]) -> anyhow::Result<String> {
    let params = if topic == Topic::Kinds { "field of `spec`" } else { "field of `params`" };
    let mut values = json!({ "topic": topic.name(), "about": topic.about(), "items": items });
    for (item, values) in items.iter().zip(values["items"].as_array_mut().into_iter().flatten()) {
        let tables = [(params, &item.fields), ("field of `output`", &item.output)];
        let tables = tables.into_iter().filter(|(_, fields)| !fields.is_empty()).map(|(title, fields)| {
            let mut table = Vec::new();
            fields.iter().for_each(|field| rows(&mut table, field, ""));
            json!({ "title": title, "rows": table })
        });
        values["tables"] = tables.collect();
    }
    let page = template::render(&[("page", include_str!("page.txt"))], "page", &values)?;
    Ok(page.trim_end().to_owned() + "\n")
}

/// Appends the cells of a field, and of its own fields.
fn rows(table: &mut Vec<[String; 3]>, item: &Item, parent: &str) {
    let values = item.values.iter().map(|value| match value.meaning.trim_end_matches('.') {
        "" => format!("`{}`", value.name),
        meaning => format!("`{}`: {meaning}", value.name),
    });
    let values: Vec<String> = values.collect();
    let values = (!values.is_empty()).then(|| format!("Values: {}.", values.join("; ")));
    let default = item.default.as_ref().map(|default| format!("Default: `{default}`."));
    let meaning = Some(item.meaning.clone()).filter(|meaning| !meaning.is_empty());
    let meaning: Vec<String> = meaning.into_iter().chain(values).chain(default).collect();
    table.push([format!("`{parent}{}`", item.name), item.type_name.clone(), cell(&meaning.join(" "))]);
    let suffix = match item.type_name.split_once(" of ") {
        Some(("list", _)) => "[].",
        Some(("map", _)) => "[key].",
        _ => ".",
    };
    let parent = format!("{parent}{}{suffix}", item.name);
    item.fields.iter().for_each(|field| rows(table, field, &parent));
}
