//! Examples of a handler, instances and a rule.

use std::fmt::Write as _;

use prost_reflect::MessageDescriptor;

use super::{Manifest, name, quoted};
use crate::cli::fields::fields;
use mixer_adapter_core::{
    framework::dynamic::{DescriptorSet, DynamicTemplate},
    template::Variety,
};
use mixer_adapter_host::handler::{AdapterInfo, TemplateInfo};

/// Matches no request until the host is replaced.
const MATCH: &str = "destination.service.host == \"example.default.svc.cluster.local\"";

impl Manifest {
    pub(super) fn example(&self, adapter: &AdapterInfo) -> Vec<String> {
        let mut resources = vec![self.handler(adapter)];
        resources.extend(adapter.templates.iter().map(|template| self.instance(adapter, template)));
        resources.push(self.rule(adapter));
        resources
    }

    fn handler(&self, adapter: &AdapterInfo) -> String {
        let spec = format!(
            "  adapter: {}\n  connection:\n    address: {}\n{}  params: {{}}\n",
            name(adapter.name),
            quoted(&self.address),
            known_fields(&adapter.config),
        );
        self.resource("handler", adapter.name, &spec)
    }

    /// Always with `params`, because a real Mixer crashes at the first request without it
    /// (docs/behaviour/configuration.md#what-ends-the-process).
    fn instance(&self, adapter: &AdapterInfo, template: &TemplateInfo) -> String {
        let message = DescriptorSet::decode(template.descriptor).and_then(|set| DynamicTemplate::new(&set));
        let known = message.map(|template| known_fields(template.instance())).unwrap_or_default();
        let mut spec = format!("  template: {}\n{known}  params: {{}}\n", name(template.name));
        if template.variety == Variety::AttributeGenerator {
            spec.push_str(
                "  # attribute and expression, such as source.namespace: output.source_namespace\n",
            );
            spec.push_str("  attribute_bindings: {}\n");
        }
        self.resource("instance", &instance_name(adapter, template), &spec)
    }

    fn rule(&self, adapter: &AdapterInfo) -> String {
        let mut spec =
            format!("  # replace this with your own condition\n  match: {}\n  actions:\n", quoted(MATCH));
        for template in &adapter.templates {
            let _ = writeln!(spec, "  - handler: {}", name(adapter.name));
            let _ = writeln!(spec, "    instances:\n    - {}", instance_name(adapter, template));
            if template.variety == Variety::CheckWithOutput {
                // Header operations refer to the output by this name.
                let _ = writeln!(spec, "    name: {}", template.name);
            }
        }
        self.resource("rule", adapter.name, &spec)
    }
}

fn instance_name(adapter: &AdapterInfo, template: &TemplateInfo) -> String {
    format!("{}-{}", adapter.name, template.name)
}

/// A YAML comment that lists the fields of `params`.
fn known_fields(message: &MessageDescriptor) -> String {
    let mut comment = String::new();
    // The name of an instance is the resource's name, not a parameter.
    for field in fields(message).iter().filter(|field| !(field.name == "name" && is_instance(message))) {
        let label = field.label.as_deref().map(|label| format!(" ({label})")).unwrap_or_default();
        let _ = writeln!(comment, "  #   {}: {}{label}", field.name, field.kind);
    }
    if comment.is_empty() { comment } else { format!("  # fields of params:\n{comment}") }
}

fn is_instance(message: &MessageDescriptor) -> bool {
    message.name() == "InstanceMsg"
}
