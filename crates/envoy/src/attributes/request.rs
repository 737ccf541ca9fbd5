//! The common part of requests in checks and in access logs.

use std::borrow::Cow;

use mixer_adapter_engine::attribute::{AttributeValue, StringMap};

use super::{
    builder::AttributeBuilder,
    host::service_name,
    target::{parameters, split},
};

/// The first line of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct HttpParts<'r> {
    pub(super) method: &'r str,
    pub(super) host: &'r str,
    pub(super) scheme: &'r str,
    /// The target with the query.
    pub(super) path: &'r str,
}

/// Sets the attributes of a request's first line and of headers. `header` returns the value of a header.
pub(super) fn set_http<'r>(
    attributes: &mut AttributeBuilder,
    parts: HttpParts<'r>,
    header: impl Fn(&str) -> Option<Cow<'r, str>>,
) {
    attributes.set_with(standard!("context.protocol"), || {
        Some(if is_grpc(header("content-type").as_deref()) { "grpc" } else { "http" })
    });
    attributes.set_text(standard!("request.method"), parts.method);
    attributes.set_text(standard!("request.host"), parts.host);
    attributes.set_text(standard!("request.scheme"), parts.scheme);
    attributes.set_text(standard!("request.path"), parts.path);
    let (path, query) = split(parts.path);
    attributes.set_text(standard!("request.url_path"), path);
    attributes.set_with(standard!("request.query_params"), || {
        // The first of several values of a parameter applies; a map takes the last.
        let parameters: Vec<(&str, &str)> = parameters(query?).collect();
        Some(parameters.into_iter().rev().collect::<StringMap>())
    });
    attributes.set_with(standard!("request.referer"), || filled(header("referer")));
    attributes.set_with(standard!("request.useragent"), || filled(header("user-agent")));
    attributes.set_with(standard!("request.api_key"), || {
        filled(header("x-api-key")).or_else(|| {
            ["key", "api_key"].iter().find_map(|name| {
                filled(parameters(query?).find(|(known, _)| known == name).map(|(_, value)| value.into()))
            })
        })
    });
}

fn filled(text: Option<Cow<'_, str>>) -> Option<Cow<'_, str>> {
    text.filter(|text| !text.is_empty())
}

/// Returns whether a content type is gRPC, grpc-web included.
pub(crate) fn is_grpc(content_type: Option<&str>) -> bool {
    content_type.is_some_and(|content_type| content_type.starts_with("application/grpc"))
}

/// Sets the name and the namespace of the service by its host.
pub(super) fn set_service(attributes: &mut AttributeBuilder) {
    if !attributes.holds(standard!("destination.service.name"))
        && !attributes.holds(standard!("destination.service.namespace"))
    {
        return;
    }
    let Some(host) = attributes.text(standard!("destination.service.host")).map(str::to_owned) else {
        return;
    };
    let (name, namespace) = service_name(&host, attributes.text(standard!("destination.namespace")));
    if !attributes.has(standard!("destination.service.name")) {
        attributes.set(standard!("destination.service.name"), name);
    }
    if !attributes.has(standard!("destination.service.namespace")) {
        attributes.set_some(standard!("destination.service.namespace"), namespace.map(AttributeValue::from));
    }
}
