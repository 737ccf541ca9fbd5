use std::{collections::BTreeSet, fmt::Write as _, process::ExitCode};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Args;

mod example;

use super::output_args::OutputArgs;
use mixer_adapter_host::handler::{AdapterInfo, Adapters, TemplateInfo};

/// Print the `template` and `adapter` resources that a real Mixer needs to call these adapters, as YAML
#[derive(Debug, Args)]
pub(super) struct Manifest {
    /// Only these adapters, with their templates
    #[arg(value_name = "NAME")]
    names: Vec<String>,

    /// The namespace of the resources
    #[arg(long, value_name = "NAMESPACE", default_value = "istio-system", value_parser = super::value_parsers::namespace)]
    namespace: String,

    /// Add an example for each adapter
    ///
    /// A handler, an instance per template, and a rule
    #[arg(long)]
    handler_example: bool,

    /// Address of the adapters in the handlers of the example
    ///
    /// HOST:PORT, or unix:/PATH
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9091", value_parser = super::value_parsers::server)]
    address: String,

    /// Write `session_based: true`. Not for released Mixers (1.0 to 1.7): none of them sends a session id
    ///
    /// With session_based, a released Mixer sends neither the configuration nor a session id with its calls, so that the
    /// adapter cannot know the handler of a call. This is for other clients that do open sessions.
    #[arg(long)]
    session_based: bool,

    #[command(flatten)]
    output: OutputArgs,
}

impl Manifest {
    pub(super) fn run(self, adapters: &Adapters) -> anyhow::Result<ExitCode> {
        let adapters = super::selected(adapters, &self.names)?;
        self.output.print_documents(&self.resources(&adapters))?;
        Ok(ExitCode::SUCCESS)
    }

    fn resources(&self, adapters: &[&AdapterInfo]) -> String {
        let mut documents = Vec::new();
        let mut templates = BTreeSet::new();
        for template in adapters.iter().flat_map(|adapter| &adapter.templates) {
            if templates.insert(template.name) {
                documents.push(self.template(template));
            }
        }
        documents.extend(adapters.iter().map(|adapter| self.adapter(adapter)));
        if self.handler_example {
            documents.extend(adapters.iter().flat_map(|adapter| self.example(adapter)));
        }
        documents.join("---\n")
    }

    fn template(&self, template: &TemplateInfo) -> String {
        let descriptor = STANDARD.encode(template.descriptor);
        self.resource("template", template.name, &format!("  descriptor: \"{descriptor}\"\n"))
    }

    /// Always with `config`, because a real Mixer sends no configuration without it.
    fn adapter(&self, adapter: &AdapterInfo) -> String {
        let mut spec = format!("  description: {}\n", quoted(adapter.description));
        let _ = writeln!(spec, "  session_based: {}", self.session_based);
        spec.push_str("  templates:\n");
        for template in &adapter.templates {
            let _ = writeln!(spec, "  - {}", name(template.name));
        }
        let _ = writeln!(spec, "  config: \"{}\"", STANDARD.encode(adapter.config_descriptor));
        self.resource("adapter", adapter.name, &spec)
    }

    fn resource(&self, kind: &str, resource: &str, spec: &str) -> String {
        format!(
            "apiVersion: config.istio.io/v1alpha2\nkind: {kind}\nmetadata:\n  name: {}\n  namespace: {}\nspec:\n{spec}",
            name(resource),
            name(&self.namespace),
        )
    }
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

/// Text in double quotes; a JSON string is a YAML string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_yaml_does_not_read_as_strings_are_quoted() {
        for word in ["on", "y", "no", "123", "1e3"] {
            assert_eq!(name(word), format!("\"{word}\""));
        }
        assert_eq!(name("list-entry"), "list-entry");
    }
}
