use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::Args;
use serde_json::{Value as Json, json};

use super::{output_args::OutputArgs, reference::Catalogue, template};
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
    pub(super) fn run(self, adapters: &Adapters) -> anyhow::Result<()> {
        let selected = super::selected(adapters, &self.names)?;
        self.output.print_documents(&self.resources(&selected, &Catalogue::new(adapters))?)
    }

    fn resources(
        &self,
        adapters: &[&AdapterInfo],
        catalogue: &Catalogue<'_>,
    ) -> Result<String, minijinja::Error> {
        let values_of = |template: &TemplateInfo| template_values(template, catalogue);
        let mut names = BTreeSet::new();
        let templates = adapters.iter().flat_map(|adapter| &adapter.templates);
        let templates = templates.filter(|template| names.insert(template.name)).map(values_of);
        let templates: Vec<Json> = templates.collect();
        let adapters = adapters.iter().map(|adapter| {
            json!({
                "name": adapter.name,
                "description": adapter.description,
                // A real Mixer sends no configuration to an adapter without its descriptor.
                "config": STANDARD.encode(adapter.config_descriptor),
                "fields": catalogue.adapter(adapter).fields,
                "templates": adapter.templates.iter().map(values_of).collect::<Vec<_>>(),
            })
        });
        let values = json!({
            "templates": templates,
            "adapters": adapters.collect::<Vec<_>>(),
            "namespace": self.namespace,
            "address": self.address,
            "session_based": self.session_based,
            "handler_example": self.handler_example,
        });
        let resources = template::render(&TEMPLATES, "resources", &values)?;
        Ok(resources.strip_prefix("---\n").unwrap_or(&resources).to_owned())
    }
}

const TEMPLATES: [(&str, &str); 2] = [
    ("resources", include_str!("manifest/resources.yaml")),
    ("fields", include_str!("manifest/fields.yaml")),
];

fn template_values(template: &TemplateInfo, catalogue: &Catalogue<'_>) -> Json {
    let described = catalogue.templates.get(template.name).map(|template| catalogue.template(template));
    json!({
        "name": template.name,
        "descriptor": STANDARD.encode(template.descriptor),
        "variety": template.variety.to_string(),
        "fields": described.map(|item| item.fields).unwrap_or_default(),
    })
}
