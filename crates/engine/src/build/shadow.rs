//! Actions in the shadow (docs/operating/shadow.md).

use super::{
    annotations::{SHADOW_ACTIONS, ShadowedActions},
    instances::InstanceSpec,
    rule_spec::ActionSpec,
};
use crate::shadow::dimensions_field;
use mixer_adapter_config::{Resource, ValidationError};
use mixer_adapter_core::{framework::dynamic::DynamicTemplate, template::Variety};

/// Takes the instances of actions in the shadow out of a rule, and returns these actions. The positions of the others do not change:
/// outputs are found by them.
pub(super) fn take_shadowed(
    resource: &Resource,
    actions: &mut [ActionSpec],
    shadow: &ShadowedActions,
    faults: &mut Vec<ValidationError>,
) -> Vec<ActionSpec> {
    if let ShadowedActions::Named(names) = shadow {
        let unknown = names.iter().filter(|name| actions.iter().all(|action| action.name != **name));
        faults.extend(unknown.map(|name| {
            resource.annotation_error(SHADOW_ACTIONS, format!("no action of the rule has the name {name:?}"))
        }));
    }
    let is_shadowed = |action: &&mut ActionSpec| match shadow {
        ShadowedActions::None => false,
        ShadowedActions::All => true,
        ShadowedActions::Named(names) => names.contains(&action.name),
    };
    let taken = actions.iter_mut().filter(is_shadowed).map(|action| {
        let instances = std::mem::take(&mut action.instances);
        ActionSpec { instances, ..action.clone() }
    });
    let mut taken: Vec<ActionSpec> = taken.collect();
    for action in &mut taken {
        action.instances.retain(|InstanceSpec { instance, .. }| {
            let reason = unsuitable(&instance.template);
            faults.extend(reason.map(|reason| {
                resource.error("actions", format!("{} cannot be in the shadow: {reason}", instance.name))
            }));
            reason.is_none()
        });
    }
    taken
}

/// Returns why instances of a template cannot be in the shadow.
fn unsuitable(template: &DynamicTemplate) -> Option<&'static str> {
    match template.variety() {
        Variety::AttributeGenerator => Some("other rules may read the attributes that it generates"),
        Variety::Quota if dimensions_field(template).is_none() => {
            Some("its template has no dimensions by which its counters could be kept apart from those in use")
        }
        _ => None,
    }
}
