//! Documents of YAML and Markdown, as templates.

use minijinja::{
    AutoEscape, Environment, Error, UndefinedBehavior, Value, syntax::SyntaxConfig, value::Serde,
};
use serde_json::Value as Json;

/// Renders one of the templates with values, which may include others.
///
/// # Errors
/// A template does not fit the values.
pub(super) fn render(templates: &[(&str, &str)], document: &str, values: &Json) -> Result<String, Error> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    let syntax =
        SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build()?;
    environment.set_syntax(syntax);
    environment.add_filter("indented", indented);
    environment.add_filter("json", |value: Value| serde_json::to_string(&value).unwrap_or_default());
    environment.add_filter("quoted_list", |items: Vec<String>| {
        format!("[{}]", items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", "))
    });
    environment.add_filter("name", name);
    environment.add_filter("cell", cell);
    for (name, template) in templates {
        environment.add_template(name, template)?;
    }
    environment.get_template(document)?.render(Serde(values))
}

/// The name of a resource, quoted if YAML 1.1 would read it as another type, such as `on`, `y` or `1e3`.
fn name(name: &str) -> String {
    const WORDS: [&str; 10] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan"];
    if WORDS.contains(&name) || !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
        quoted(name)
    } else {
        name.to_owned()
    }
}

/// The text of a cell in a table of Markdown.
pub(super) fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Indents each line.
fn indented(text: &str, width: usize) -> String {
    text.lines().map(|line| format!("{:width$}{line}\n", "")).collect()
}

/// A string of YAML, which reads JSON's strings.
pub(super) fn quoted(text: &str) -> String {
    Json::from(text).to_string()
}
