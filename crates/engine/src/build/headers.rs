//! Header operations of rules, compiled with the outputs of the rule's named actions.

use std::sync::Arc;

use super::{
    faults::{compile, of_expression},
    rule_spec::{ActionSpec, HeaderSpec},
};
use crate::{
    attribute::Vocabulary, output::Outputs, proto::istio::mixer::v1::header_operation::Operation,
    rules::HeaderTemplate,
};
use mixer_adapter_config::{
    Resource, ValidationError,
    proto::istio::policy::v1beta1::{
        Rule,
        rule::{HeaderOperationTemplate, header_operation_template::Operation as Configured},
    },
};
use mixer_adapter_core::{template::Variety, value::ValueType};

/// Compiles the operations of a rule. As in Mixer, an operation that does not compile drops all of them, but not the rule's
/// actions.
pub(super) fn operations(
    resource: &Resource,
    rule: &Rule,
    actions: &[ActionSpec],
    vocabulary: &Arc<Vocabulary>,
    faults: &mut Vec<ValidationError>,
) -> Option<HeaderSpec> {
    let mut extended = Vocabulary::extending(vocabulary.clone());
    let has_operations =
        !rule.request_header_operations.is_empty() || !rule.response_header_operations.is_empty();
    let mut outputs = Vec::new();
    for (action_index, action) in actions.iter().enumerate().filter(|(_, action)| !action.name.is_empty()) {
        let first = action.instances.first();
        for (place, compiled) in action.instances.iter().enumerate() {
            let template = &compiled.instance.template;
            if let (Variety::CheckWithOutput, Some(output)) = (template.variety(), template.output()) {
                if has_operations
                    && first.is_none_or(|first| first.instance.template.name() != template.name())
                {
                    let field = format!("actions[{action_index}].instances[{place}]");
                    let reason = "Mixer has the outputs of the first instance of an action only, and drops header operations that \
                                  read others; write an action of its own for this instance";
                    faults.push(resource.warning(&field, reason));
                }
                let prefix = format!("{}.output", action.name);
                outputs.push((action_index, place, Outputs::declare(output.clone(), &prefix, &mut extended)));
            }
        }
    }
    // Behind Envoy, outputs are also in the metadata of answers.
    if !has_operations && outputs.is_empty() {
        return None;
    }
    let [request, response] = [
        ("request_header_operations", &rule.request_header_operations),
        ("response_header_operations", &rule.response_header_operations),
    ]
    .map(|(field, templates)| {
        let compiled: Option<Vec<_>> = templates
            .iter()
            .enumerate()
            .map(|(index, template)| {
                operation(resource, &format!("{field}[{index}]"), template, &extended, faults)
            })
            .collect();
        compiled.map(Arc::from)
    });
    Some(HeaderSpec { vocabulary: Arc::new(extended), outputs, request: request?, response: response? })
}

fn operation(
    resource: &Resource,
    field: &str,
    template: &HeaderOperationTemplate,
    vocabulary: &Vocabulary,
    faults: &mut Vec<ValidationError>,
) -> Option<HeaderTemplate> {
    let operation = match template.operation() {
        Configured::Replace => Operation::Replace,
        Configured::Remove => Operation::Remove,
        Configured::Append => Operation::Append,
    };
    if template.name.is_empty() {
        faults.push(resource.error(&format!("{field}.name"), "an operation needs the name of a header"));
        return None;
    }
    let mut values = Vec::new();
    // Values of a removal are ignored.
    let texts = if operation == Operation::Remove { &[][..] } else { &template.values };
    for (index, text) in texts.iter().enumerate() {
        let field = format!("{field}.values[{index}]");
        // Mixer accepts no other type, even if its values are strings.
        let target = ("a header's value", ValueType::String);
        let expression = compile(resource, &field, text, vocabulary, target, faults)?;
        faults.extend(of_expression(resource, &field, text, &expression));
        values.push(expression);
    }
    Some(HeaderTemplate { name: template.name.clone(), operation, values })
}
