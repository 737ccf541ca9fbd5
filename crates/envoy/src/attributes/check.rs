//! Attributes of a check of external authorization.

use std::{collections::BTreeMap, net::IpAddr, time::SystemTime};

use mixer_adapter_engine::attribute::{Bag, Standard, StringMap};

use super::{
    builder::{AttributeBuilder, AttributeError, socket},
    host::service_host,
    metadata::set_metadata,
    principal::{self, set_forwarded_source},
    request::{HttpParts, set_http, set_service},
};
use crate::{
    options::MappingOptions,
    proto::envoy::service::auth::v3::{
        AttributeContext,
        attribute_context::{HttpRequest, Peer},
    },
    request_headers::{RequestHeaders, trimmed},
};

/// The header that Envoy adds to a request with a body: whether the body is longer.
const PARTIAL_BODY: &str = "x-envoy-auth-partial-body";

/// Adds the attributes of a request or a connection to a bag.
///
/// # Errors
/// A configured value is not of the type of its attribute, the host is not valid, or a header cannot be decoded.
pub(crate) fn check_attributes(
    context: &AttributeContext,
    bag: Bag,
    options: &MappingOptions,
) -> Result<Bag, AttributeError> {
    let mut attributes = AttributeBuilder::new(bag);
    attributes.set(standard!("context.reporter.kind"), "inbound");
    attributes.set_with(standard!("context.time"), || Some(SystemTime::now()));
    set_source(&mut attributes, context.source.as_ref());
    set_destination(&mut attributes, context.destination.as_ref());
    let server_name = context.tls_session.as_ref().map_or("", |session| session.sni.as_str());
    attributes.set_text(standard!("connection.requested_server_name"), server_name);
    let time = context.request.as_ref().and_then(|request| request.time);
    attributes.set_some(standard!("context.timestamp"), time);
    attributes.set_some(standard!("request.time"), time);
    let host = match context.request.as_ref().and_then(|request| request.http.as_ref()) {
        Some(http) => {
            let headers = RequestHeaders::of(http)?;
            set_request(&mut attributes, http, &headers, context.source.as_ref(), options);
            trimmed(&http.host)
        }
        None => {
            attributes.set(standard!("context.protocol"), "tcp");
            attributes.set(standard!("connection.event"), "open");
            attributes.set_with(standard!("origin.ip"), || {
                Some(socket(context.source.as_ref()?.address.as_ref())?.0)
            });
            context
                .destination
                .as_ref()
                .map(|peer| &peer.service)
                .filter(|service| !service.is_empty())
                .map_or(server_name, String::as_str)
        }
    };
    let host = service_host(host)?;
    attributes.set_text(standard!("destination.service.host"), &host);
    if let Some(namespace) = options.namespaces.find(&host) {
        attributes.set(standard!("destination.namespace"), namespace);
    }
    set_metadata(&mut attributes, "filter metadata", context.metadata_context.as_ref())?;
    set_metadata(&mut attributes, "route metadata", context.route_metadata_context.as_ref())?;
    let extensions = context.context_extensions.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    attributes.set_configured("context extension", extensions)?;
    set_service(&mut attributes);
    Ok(attributes.finish())
}

fn set_source(attributes: &mut AttributeBuilder, peer: Option<&Peer>) {
    let Some(peer) = peer else { return };
    attributes.set_address(standard!("source.ip"), standard!("source.port"), peer.address.as_ref());
    set_labels(attributes, standard!("source.labels"), &peer.labels);
    principal::set_source(attributes, &peer.principal);
    attributes.set(standard!("connection.mtls"), !peer.principal.is_empty() || !peer.certificate.is_empty());
}

fn set_destination(attributes: &mut AttributeBuilder, peer: Option<&Peer>) {
    let Some(peer) = peer else { return };
    attributes.set_address(standard!("destination.ip"), standard!("destination.port"), peer.address.as_ref());
    set_labels(attributes, standard!("destination.labels"), &peer.labels);
    principal::set_destination(attributes, &peer.principal);
}

fn set_labels(attributes: &mut AttributeBuilder, attribute: Standard, labels: &BTreeMap<String, String>) {
    attributes.set_with(attribute, || (!labels.is_empty()).then(|| string_map(labels)));
}

fn set_request(
    attributes: &mut AttributeBuilder,
    http: &HttpRequest,
    headers: &RequestHeaders<'_>,
    source: Option<&Peer>,
    options: &MappingOptions,
) {
    attributes.set_with(standard!("request.id"), || {
        headers.filled("x-request-id").or(Some((&*http.id).into())).filter(|id| !id.is_empty())
    });
    set_http(
        attributes,
        // The fields have the request's pseudo-headers.
        HttpParts {
            method: trimmed(&http.method),
            host: trimmed(&http.host),
            scheme: trimmed(&http.scheme),
            path: trimmed(&http.path),
        },
        |name| headers.get(name),
    );
    attributes.set_with(standard!("request.size"), || body_size(http, headers));
    attributes.set_with(standard!("request.body"), || match http.body.as_str() {
        "" => std::str::from_utf8(&http.raw_body).ok().filter(|body| !body.is_empty()),
        body => Some(body),
    });
    if !http.body.is_empty() || !http.raw_body.is_empty() {
        attributes.set_with(standard!("request.body_truncated"), || {
            headers.get(PARTIAL_BODY)?.parse::<bool>().ok()
        });
    }
    attributes.set_with(standard!("origin.ip"), || {
        let forwarded = headers.get("x-forwarded-for").and_then(|list| client(&list, options.trusted_hops));
        forwarded.or_else(|| Some(socket(source?.address.as_ref())?.0))
    });
    if options.trust_forwarded_client_cert {
        set_forwarded_source(attributes, headers.get("x-forwarded-client-cert").as_deref());
    }
    attributes.set_with(standard!("request.headers"), || Some(headers.to_map()));
}

/// Returns the size of the body, unless it is unknown. `content-length` takes precedence, because Envoy states the number of bytes
/// received so far, or 0 for a body that it does not buffer (docs/behaviour/envoy.md#requests-of-a-check). Without it, the size of a
/// partial body, and of a body in HTTP/2 or HTTP/3 that is not sent, is unknown.
fn body_size(http: &HttpRequest, headers: &RequestHeaders<'_>) -> Option<i64> {
    if let Some(length) = headers.get("content-length") {
        return length.parse().ok().filter(|length| *length >= 0);
    }
    if http.size != 0 {
        let is_whole = headers.get(PARTIAL_BODY).is_some_and(|partial| partial == "false");
        return Some(http.size).filter(|size| *size > 0 && is_whole);
    }
    let has_end = !matches!(http.protocol.as_str(), "HTTP/2" | "HTTP/3")
        || matches!(http.method.as_str(), "GET" | "HEAD");
    (has_end && headers.get("transfer-encoding").is_none()).then_some(0)
}

fn string_map(entries: &BTreeMap<String, String>) -> StringMap {
    entries.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

/// Returns the address of the client in `x-forwarded-for`: the last address that no trusted proxy in front of Envoy has added.
fn client(list: &str, trusted_hops: usize) -> Option<IpAddr> {
    list.rsplit(',').nth(trusted_hops)?.trim().parse().ok()
}
