//! Values whose meaning differs between the versions of a field.

use prost_reflect::{DynamicMessage, MapKey, ReflectMessage as _, Value};

use super::lists::{config_of, config_per_route, name_of, name_per_route};

/// `ApiVersion` in both versions.
const V2: i32 = 1;
const V3: i32 = 2;

/// Adapts a translated message to its version.
pub(super) fn adapt(message: &mut DynamicMessage) {
    let descriptor = message.descriptor();
    match descriptor.full_name() {
        // Unset means version 2 to Envoys that know it, and is refused by others.
        "envoy.config.core.v3.ConfigSource" => set_resource_version(message, V3),
        "envoy.api.v2.core.ConfigSource" if message.has_field_by_name("resource_api_version") => {
            set_resource_version(message, V2);
        }
        "envoy.api.v2.route.VirtualHost"
        | "envoy.api.v2.route.Route"
        | "envoy.api.v2.route.WeightedCluster.ClusterWeight" => name_per_route_configs(message),
        container => {
            let container = container.to_owned();
            name_extension(message, &container);
        }
    }
}

fn set_resource_version(source: &mut DynamicMessage, version: i32) {
    source.set_field_by_name("resource_api_version", Value::EnumNumber(version));
}

/// Version 2 finds an extension by its name, version 3 by the type of its configuration, whatever its name.
fn name_extension(extension: &mut DynamicMessage, container: &str) {
    let Some(Value::Message(config)) = value(extension, "typed_config") else { return };
    let Some(Value::String(name)) = value(extension, "name") else { return };
    let Some(message) = message_name(&config) else { return };
    if config_of(container, &name) == Some(message.as_str()) {
        return;
    }
    if let Some(known) = name_of(container, &message) {
        extension.set_field_by_name("name", Value::String(known));
    }
}

/// Names the configurations for one route as the filters that they are for.
fn name_per_route_configs(message: &mut DynamicMessage) {
    let Some(Value::Map(configs)) = value(message, "typed_per_filter_config") else { return };
    let renamed = configs.into_iter().map(|(name, config)| {
        let typed = config.as_message().and_then(message_name);
        let is_known = typed.is_some() && name.as_str().and_then(config_per_route) == typed.as_deref();
        let known = typed.filter(|_| !is_known).and_then(|message| name_per_route(&message));
        (known.map_or(name, MapKey::String), config)
    });
    let renamed = renamed.collect();
    message.set_field_by_name("typed_per_filter_config", Value::Map(renamed));
}

fn value(message: &DynamicMessage, field: &str) -> Option<Value> {
    Some(message.get_field_by_name(field)?.into_owned())
}

/// The name of the message in an Any.
fn message_name(any: &DynamicMessage) -> Option<String> {
    let type_url = value(any, "type_url")?;
    Some(type_url.as_str()?.rsplit('/').next()?.to_owned())
}
