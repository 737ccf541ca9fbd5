//! The documents, as templates of YAML.

use minijinja::{
    AutoEscape, Environment, Error, UndefinedBehavior, Value, syntax::SyntaxConfig, value::Serde,
};
use serde_json::Value as Json;

const TEMPLATES: [(&str, &str); 13] = [
    ("body_comment", include_str!("templates/body_comment.yaml")),
    ("bootstrap", include_str!("templates/bootstrap.yaml")),
    ("connections", include_str!("templates/connections.yaml")),
    ("failure_modes", include_str!("templates/failure_modes.yaml")),
    ("gateway", include_str!("templates/gateway.yaml")),
    ("grpc_service", include_str!("templates/grpc_service.yaml")),
    ("istio", include_str!("templates/istio.yaml")),
    ("log_common", include_str!("templates/log_common.yaml")),
    ("rate_limit", include_str!("templates/rate_limit.yaml")),
    ("reject_underscores", include_str!("templates/reject_underscores.yaml")),
    ("requests", include_str!("templates/requests.yaml")),
    ("server_cluster", include_str!("templates/server_cluster.yaml")),
    ("tls_client", include_str!("templates/tls_client.yaml")),
];

/// Renders a document.
///
/// # Errors
/// A template does not fit the values.
pub(super) fn render(document: &str, values: &Json) -> Result<String, Error> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let syntax =
        SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).keep_trailing_newline(true).build()?;
    environment.set_syntax(syntax);
    environment.add_filter("indented", indented);
    environment.add_filter("json", |value: Value| serde_json::to_string(&value).unwrap_or_default());
    environment.add_filter("quoted_list", |items: Vec<String>| {
        format!("[{}]", items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", "))
    });
    for (name, template) in TEMPLATES {
        environment.add_template(name, template)?;
    }
    environment.get_template(document)?.render(Serde(values))
}

fn indented(text: &str, width: usize) -> String {
    text.lines().map(|line| format!("{:width$}{line}\n", "")).collect()
}

/// A string of YAML, which reads JSON's strings.
pub(super) fn quoted(text: &str) -> String {
    Json::from(text).to_string()
}
