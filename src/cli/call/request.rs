use std::collections::BTreeMap;

use http::uri::PathAndQuery;
use prost_reflect::{DynamicMessage, MessageDescriptor, ReflectMessage as _, Value};
use serde_json::Value as Json;

use super::Call;
use crate::cli::{UsageError, find, input};
use mixer_adapter_core::{
    framework::{
        dynamic::{DescriptorSet, DynamicTemplate},
        json::{read_json, read_params},
    },
    proto::{Any, QuotaRequest, istio::mixer::adapter::model::v1beta1::quota_request::QuotaParams},
    template::Variety,
};
use mixer_adapter_engine::build::known_templates;
use mixer_adapter_host::handler::{Adapters, quoted_list};

/// The calls of a command line.
pub(super) struct PreparedCall {
    pub(super) template: DynamicTemplate,
    pub(super) method: PathAndQuery,
    pub(super) instances: Vec<DynamicMessage>,
    pub(super) adapter_config: Option<Any>,
    pub(super) quota_request: Option<QuotaRequest>,
    /// Empty without --session.
    pub(super) inferred_types: BTreeMap<String, DynamicMessage>,
}

impl PreparedCall {
    pub(super) fn read(call: &Call, adapters: &Adapters) -> Result<Self, UsageError> {
        let template = template(call, adapters)?;
        let instances = instances(call, &template)?;
        let method = PathAndQuery::try_from(template.method())
            .map_err(|error| usage!("{:?} is not a valid method: {error}", template.method()))?;
        let inferred_types =
            if call.session { inferred_types(&template, &instances)? } else { BTreeMap::new() };
        Ok(Self {
            method,
            inferred_types,
            adapter_config: adapter_config(call, adapters, &template)?,
            quota_request: quota_request(call, &template, &instances)?,
            instances,
            template,
        })
    }
}

/// The inferred types of the instances, by the names of the instances.
fn inferred_types(
    template: &DynamicTemplate,
    instances: &[DynamicMessage],
) -> Result<BTreeMap<String, DynamicMessage>, UsageError> {
    let mut types = BTreeMap::new();
    for instance in instances {
        let name = instance_name(instance);
        let Some(inferred) = template.inferred_type(instance) else {
            return Err(usage!("--session: the template `{}` has no message Type", template.name()));
        };
        if types.insert(name.clone(), inferred.clone()).is_some_and(|known| known != inferred) {
            return Err(usage!(
                "--session: instances named `{name}` have values of different types; set a different \"name\" for each"
            ));
        }
    }
    Ok(types)
}

fn template(call: &Call, adapters: &Adapters) -> Result<DynamicTemplate, UsageError> {
    match (&call.descriptor, &call.template) {
        (Some(descriptor), _) => described_template(descriptor),
        (None, name) => known_template(name.as_deref().unwrap_or_default(), adapters),
    }
}

/// Reads the template of --descriptor.
pub(in crate::cli) fn described_template(descriptor: &str) -> Result<DynamicTemplate, UsageError> {
    let set = input::descriptor("--descriptor", descriptor)?;
    DynamicTemplate::new(&set).map_err(|error| usage!("--descriptor: {error}"))
}

/// Returns a known template.
pub(in crate::cli) fn known_template(name: &str, adapters: &Adapters) -> Result<DynamicTemplate, UsageError> {
    let known = known_templates(adapters);
    let Some(descriptor) = known.get(name) else {
        let known = quoted_list(known.keys());
        return Err(usage!("unknown template `{name}`; known are {known}; use --descriptor for any other"));
    };
    let set = DescriptorSet::decode(*descriptor);
    set.and_then(|set| DynamicTemplate::new(&set)).map_err(|error| usage!("{name}: {error}"))
}

fn instances(call: &Call, template: &DynamicTemplate) -> Result<Vec<DynamicMessage>, UsageError> {
    let empty = ["{}".to_owned()];
    let arguments = if call.instances.is_empty() { &empty[..] } else { &call.instances };
    if arguments.len() > 1 && template.variety() != Variety::Report {
        return Err(usage!(
            "--instance: a call of `{}` has one instance; only reports have several",
            template.name()
        ));
    }
    let name = match &call.instance_name {
        Some(name) => name.clone(),
        None => format!("{}.instance.istio-system", template.name()),
    };
    let instances = arguments.iter().map(|argument| {
        let json = input::json("--instance", argument)?;
        let mut instance = read_json(template.instance(), json)
            .map_err(|error| usage!("--instance: {error} (in {})", template.instance().full_name()))?;
        if instance_name(&instance).is_empty() {
            // Templates of other generators may not have this field.
            let _ = instance.try_set_field_by_name("name", Value::String(name.clone()));
        }
        Ok(instance)
    });
    instances.collect()
}

fn instance_name(instance: &DynamicMessage) -> String {
    let name = instance.get_field_by_name("name");
    name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

fn quota_request(
    call: &Call,
    template: &DynamicTemplate,
    instances: &[DynamicMessage],
) -> Result<Option<QuotaRequest>, UsageError> {
    if template.variety() != Variety::Quota {
        let flag = if call.best_effort {
            Some("--best-effort")
        } else {
            call.quota_amount.map(|_| "--quota-amount")
        };
        return match flag {
            None => Ok(None),
            Some(flag) => Err(usage!(
                "{flag}: only quota templates have an amount; `{}` is a {}",
                template.name(),
                template.variety()
            )),
        };
    }
    let params = QuotaParams {
        amount: call.quota_amount.unwrap_or(1),
        best_effort: call.best_effort,
        ..QuotaParams::default()
    };
    Ok(Some(QuotaRequest {
        quotas: instances.iter().map(|instance| (instance_name(instance), params)).collect(),
    }))
}

/// The handler's configuration as Mixer sends it; `None` if neither a configuration nor an adapter is given.
fn adapter_config(
    call: &Call,
    adapters: &Adapters,
    template: &DynamicTemplate,
) -> Result<Option<Any>, UsageError> {
    let config = call.config.as_ref().map(|config| input::json("--config", config)).transpose()?;
    let known = config_message(call, adapters, template, config.is_some())?;
    let message = match (known, &config) {
        (Some(message), _) => message,
        (None, Some(_)) => prost_types::Struct::default().descriptor(),
        (None, None) => return Ok(None),
    };
    let value = read_params(&message, config.unwrap_or(Json::Object(Default::default())))
        .map_err(|error| usage!("--config: {error} (in {})", message.full_name()))?;
    Ok(Some(Any { type_url: format!("type.googleapis.com/{}", message.full_name()), value }))
}

/// The configuration message of --config-descriptor or --adapter.
pub(in crate::cli) fn given_config_message(
    descriptor: Option<&str>,
    adapter: Option<&str>,
    adapters: &Adapters,
) -> Result<Option<MessageDescriptor>, UsageError> {
    if let Some(descriptor) = descriptor {
        let set = input::descriptor("--config-descriptor", descriptor)?;
        return set.params().map(Some).map_err(|error| usage!("--config-descriptor: {error}"));
    }
    adapter.map(|name| Ok(find(adapters, name)?.config.clone())).transpose()
}

/// The configuration message of the adapter, if it is known.
fn config_message(
    call: &Call,
    adapters: &Adapters,
    template: &DynamicTemplate,
    has_config: bool,
) -> Result<Option<MessageDescriptor>, UsageError> {
    let given = given_config_message(call.config_descriptor.as_deref(), call.adapter.as_deref(), adapters)?;
    if given.is_some() {
        return Ok(given);
    }
    let mut serving = adapters.iter().filter(|adapter| adapter.serves(template.name()));
    match (has_config, serving.next(), serving.next()) {
        (true, Some(only), None) => Ok(Some(only.config.clone())),
        _ => Ok(None),
    }
}
