//! The services of a server: their names for health, their groups for policies, and reflection.

use std::sync::{Arc, LazyLock};

use axum::{extract::Request, routing::any};
use http::Uri;
use tonic::service::Routes;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_reflection::{pb::v1alpha, server::Builder};
use tower_service::Service as _;

use super::{backend, explain};
use mixer_adapter_host::Host;
use mixer_adapter_templates::STANDARD;

/// The groups of services that policies name.
pub(crate) const SERVICE_GROUPS: [&str; 6] =
    [TEMPLATES, "sessions", "mixer", "explain", "reflection", "envoy"];

const TEMPLATES: &str = "templates";

/// The group of the service that a path belongs to; `None` for health, which needs no authentication.
pub(crate) fn service_group(path: &str) -> Option<&'static str> {
    let service = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    match service {
        backend::SERVICE => Some("sessions"),
        super::mixer::SERVICE => Some("mixer"),
        explain::SERVICE => Some("explain"),
        "grpc.health.v1.Health" => None,
        _ if service.starts_with("grpc.reflection.") => Some("reflection"),
        _ if service.starts_with("envoy.") => Some("envoy"),
        _ => Some(TEMPLATES),
    }
}

/// The services of the health check by name; the empty one is the server.
pub(super) fn service_names(host: &Host, mixer: bool, additional: &[&str]) -> Vec<String> {
    let mut names = vec![String::new(), backend::SERVICE.to_owned()];
    if mixer {
        names.extend([super::mixer::SERVICE, explain::SERVICE].map(str::to_owned));
    }
    let methods = host.adapters().templates().filter_map(|template| template.method.split('/').nth(1));
    names.extend(methods.chain(additional.iter().copied()).map(str::to_owned));
    names
}

/// The descriptors of a server, for reflection.
pub(super) fn descriptors(host: &Host, additional: &[&'static [u8]]) -> Vec<&'static [u8]> {
    let own: [&[u8]; 2] =
        [mixer_adapter_core::proto::DESCRIPTORS, include_bytes!(concat!(env!("OUT_DIR"), "/mixer.bin"))];
    own.into_iter()
        .chain(host.adapters().iter().map(|adapter| adapter.config_descriptor))
        .chain(STANDARD.iter().map(|(_, descriptor)| *descriptor))
        .chain(host.adapters().templates().map(|template| template.descriptor))
        .chain(additional.iter().copied())
        .collect()
}

/// The method of reflection.
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
/// The method that older clients call, with the same messages.
const FORMER_REFLECTION: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

/// Returns reflection for encoded `FileDescriptorSet`s, which the first request decodes, and health.
pub(crate) fn reflection(health: HealthServer<impl Health>, sets: Vec<&'static [u8]>) -> Routes {
    let reflection = Arc::new(LazyLock::new(move || decoded(&sets)));
    let method = any(move |mut request: Request| {
        *request.uri_mut() = Uri::from_static(REFLECTION);
        Routes::clone(&reflection).call(request)
    });
    let health = Routes::new(health.max_decoding_message_size(MAX_NAME_REQUEST)).into_axum_router();
    health.route(REFLECTION, method.clone()).route(FORMER_REFLECTION, method).into()
}

/// Returns reflection, or no service if a descriptor is invalid.
fn decoded(sets: &[&[u8]]) -> Routes {
    let builder = Builder::configure()
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(v1alpha::FILE_DESCRIPTOR_SET);
    let builder = sets.iter().fold(builder, |builder, set| builder.register_encoded_file_descriptor_set(set));
    match builder.build_v1() {
        Ok(server) => Routes::new(server.max_decoding_message_size(MAX_NAME_REQUEST)),
        Err(error) => {
            tracing::error!(%error, "reflection is not served: a descriptor is invalid");
            Routes::default()
        }
    }
}

/// The longest request to health and reflection, in bytes: tonic reserves the announced length. They hold a name.
const MAX_NAME_REQUEST: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_belongs_to_the_group_that_policies_name() {
        for (path, group) in [
            ("/listentry.HandleListEntryService/HandleListEntry", Some("templates")),
            ("/istio.mixer.adapter.model.v1beta1.InfrastructureBackend/CreateSession", Some("sessions")),
            ("/istio.mixer.adapter.model.v1beta1.InfrastructureBackend/Validate", Some("sessions")),
            ("/istio.mixer.v1.Mixer/Check", Some("mixer")),
            ("/istio.mixer.v1.Mixer/Report", Some("mixer")),
            ("/mixer_adapter.v1.Explain/Check", Some("explain")),
            ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Some("reflection")),
            ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Some("reflection")),
            ("/grpc.health.v1.Health/Check", None),
            ("/grpc.health.v1.Health/Watch", None),
            ("/envoy.service.auth.v3.Authorization/Check", Some("envoy")),
            ("/envoy.service.auth.v2.Authorization/Check", Some("envoy")),
            ("/envoy.service.auth.v2alpha.Authorization/Check", Some("envoy")),
            ("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", Some("envoy")),
            ("/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit", Some("envoy")),
            ("/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs", Some("envoy")),
            ("/envoy.service.accesslog.v2.AccessLogService/StreamAccessLogs", Some("envoy")),
        ] {
            assert_eq!(service_group(path), group, "{path}");
            assert!(group.is_none_or(|group| SERVICE_GROUPS.contains(&group)), "{path}");
        }
    }

    #[test]
    fn names_that_resemble_health_belong_to_a_group() {
        for path in [
            "",
            "/",
            "/grpc.health.v1.Health2/Check",
            "/grpc.health.v1/Health/Check",
            "/x/grpc.health.v1.Health",
        ] {
            assert_eq!(service_group(path), Some(TEMPLATES), "{path}");
        }
    }
}
