//! Attributes of entries of access logs.

use mixer_adapter_engine::attribute::{AttributeValue, Bag, Standard, StringMap};
use prost_types::{Struct, Timestamp, value::Kind};

use super::{
    builder::{AttributeBuilder, AttributeError, socket},
    flags::short_names,
    host::service_host,
    metadata::{kind, set_metadata},
    node::LogSender,
    peer::{DESTINATION, SOURCE, set_peers},
    principal::{self, set_forwarded_source},
    request::{HttpParts, set_http, set_service},
};
use crate::{
    metadata::METADATA,
    options::MappingOptions,
    proto::envoy::{
        config::core::v3::{Metadata, RequestMethod},
        data::accesslog::v3::{
            AccessLogCommon, AccessLogType, HttpAccessLogEntry, HttpRequestProperties,
            HttpResponseProperties, TcpAccessLogEntry, TlsProperties,
            tls_properties::{CertificateProperties, certificate_properties::subject_alt_name::San},
        },
    },
};

/// The filters whose metadata has our decision.
const DECISIONS: [&str; 3] =
    ["envoy.filters.http.ext_authz", "envoy.filters.network.ext_authz", "envoy.filters.http.ratelimit"];

/// The beginning of the details of a response that is Envoy's, because of external authorization.
const CHECK_FAILED: &str = "ext_authz_";

/// Adds the attributes of a request and its response to a bag.
///
/// # Errors
/// A configured value is not of the type of its attribute.
pub(crate) fn http_attributes(
    entry: &HttpAccessLogEntry,
    sender: &LogSender,
    bag: Bag,
    options: &MappingOptions,
) -> Result<Bag, AttributeError> {
    let mut attributes = AttributeBuilder::new(bag);
    let (common, request) = (entry.common_properties.as_ref(), entry.request.as_ref());
    if let Some(request) = request {
        set_request(&mut attributes, request);
    }
    let authority = request.map_or("", |request| &request.authority);
    if let Some(common) = common {
        set_common(&mut attributes, common, authority, sender, options);
        attributes.set_some(standard!("request.time"), common.start_time);
        attributes.set_some(standard!("context.time"), common.start_time);
        attributes.set_with(standard!("response.duration"), || {
            common.duration.or(common.time_to_last_downstream_tx_byte).and_then(length)
        });
        attributes.set_with(standard!("response.time"), || {
            let first = common.time_to_first_upstream_rx_byte.or(common.time_to_first_downstream_tx_byte);
            later(common.start_time, first)
        });
        if request.is_none_or(|request| request.request_id.is_empty()) {
            attributes.set_text(standard!("request.id"), &common.stream_id);
        }
    }
    if options.trust_forwarded_client_cert
        && let Some(request) = request
    {
        let header = request.request_headers.get("x-forwarded-client-cert");
        set_forwarded_source(&mut attributes, header.map(String::as_str));
    }
    if let Some(response) = &entry.response {
        set_response(&mut attributes, response);
    }
    finish(attributes, common)
}

/// Adds the attributes of a connection to a bag.
///
/// # Errors
/// As [`http_attributes`].
pub(crate) fn tcp_attributes(
    entry: &TcpAccessLogEntry,
    sender: &LogSender,
    bag: Bag,
    options: &MappingOptions,
) -> Result<Bag, AttributeError> {
    let mut attributes = AttributeBuilder::new(bag);
    attributes.set(standard!("context.protocol"), "tcp");
    let common = entry.common_properties.as_ref();
    if let Some(common) = common {
        set_common(&mut attributes, common, "", sender, options);
        attributes.set_text(standard!("connection.id"), &common.stream_id);
        let event = match common.access_log_type() {
            AccessLogType::TcpUpstreamConnected | AccessLogType::TcpConnectionStart => Some("open"),
            AccessLogType::TcpPeriodic => Some("continue"),
            AccessLogType::TcpConnectionEnd => Some("close"),
            _ => None,
        };
        attributes.set_some(standard!("connection.event"), event);
        attributes.set_some(
            standard!("context.time"),
            later(common.start_time, common.duration).or(common.start_time),
        );
        // Without a type it is the entry at the end, which Envoy writes by default.
        let is_closed = !matches!(event, Some("open" | "continue"));
        if is_closed {
            attributes.set_some(standard!("connection.duration"), common.duration.and_then(length));
        }
        if let Some(bytes) = &entry.connection_properties {
            let (received, sent) = (bytes.received_bytes, bytes.sent_bytes);
            attributes.set(standard!("connection.received.bytes_total"), number(received));
            attributes.set(standard!("connection.sent.bytes_total"), number(sent));
            if let Some((received, sent)) = sender.difference(&common.stream_id, received, sent, is_closed) {
                attributes.set(standard!("connection.received.bytes"), number(received));
                attributes.set(standard!("connection.sent.bytes"), number(sent));
            }
        }
    }
    finish(attributes, common)
}

/// Sets configured attributes, which take precedence, and attributes that depend on them.
fn finish(mut attributes: AttributeBuilder, common: Option<&AccessLogCommon>) -> Result<Bag, AttributeError> {
    if let Some(common) = common {
        set_metadata(&mut attributes, "filter metadata", common.metadata.as_ref())?;
        let tags = common.custom_tags.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        attributes.set_configured("custom tag", tags)?;
    }
    set_service(&mut attributes);
    Ok(attributes.finish())
}

fn set_common(
    attributes: &mut AttributeBuilder,
    common: &AccessLogCommon,
    authority: &str,
    sender: &LogSender,
    options: &MappingOptions,
) {
    let is_outbound = common.upstream_cluster.starts_with("outbound|");
    attributes.set(standard!("context.reporter.kind"), if is_outbound { "outbound" } else { "inbound" });
    attributes.set_some(standard!("context.reporter.uid"), sender.uid.as_deref());
    attributes.set_some(standard!("context.timestamp"), common.start_time);
    attributes.set_address(
        standard!("source.ip"),
        standard!("source.port"),
        common.downstream_direct_remote_address.as_ref(),
    );
    attributes.set_with(standard!("origin.ip"), || {
        let direct = common.downstream_direct_remote_address.as_ref();
        Some(socket(common.downstream_remote_address.as_ref().or(direct))?.0)
    });
    let destination =
        if is_outbound { &common.upstream_remote_address } else { &common.downstream_local_address };
    attributes.set_address(standard!("destination.ip"), standard!("destination.port"), destination.as_ref());
    attributes.set_with(standard!("context.proxy_error_code"), || {
        Some(short_names(&common.response_flags.unwrap_or_default()))
    });
    if let Some(tls) = &common.tls_properties {
        set_tls(attributes, tls);
    }
    if let Some(decision) = decision(common.metadata.as_ref()) {
        set_decision(attributes, decision);
    }
    let upstream = common.upstream_cluster.split('|').nth(3).filter(|host| !host.is_empty());
    let authority = upstream.unwrap_or(authority);
    // A check of an invalid host fails; its entry has the host as it was sent.
    let host = service_host(authority).unwrap_or_else(|_| authority.to_ascii_lowercase());
    attributes.set_text(standard!("destination.service.host"), &host);
    set_sender(attributes, sender, if is_outbound { SOURCE } else { DESTINATION });
    set_peers(attributes, &common.filter_state_objects);
    if let Some(namespace) = options.namespaces.find(&host) {
        attributes.set(standard!("destination.namespace"), namespace);
    }
}

/// Sets the workload on the sender's side.
fn set_sender(attributes: &mut AttributeBuilder, sender: &LogSender, side: [Standard; 7]) {
    let [name, uid, namespace, workload, workload_namespace, owner, labels] = side;
    attributes.set_with(name, || sender.pod.as_deref());
    attributes.set_with(uid, || sender.uid.as_deref());
    attributes.set_with(namespace, || sender.namespace.clone());
    attributes.set_with(workload, || sender.workload.as_deref());
    attributes.set_with(workload_namespace, || sender.workload.as_ref().and(sender.namespace.clone()));
    attributes.set_with(owner, || sender.owner.as_deref());
    attributes.set_with(labels, || sender.labels.clone());
}

fn set_tls(attributes: &mut AttributeBuilder, tls: &TlsProperties) {
    attributes.set_text(standard!("connection.requested_server_name"), &tls.tls_sni_hostname);
    let peer = tls.peer_certificate_properties.as_ref();
    let has_certificate =
        peer.is_some_and(|peer| !peer.subject.is_empty() || !peer.subject_alt_name.is_empty());
    attributes.set(standard!("connection.mtls"), has_certificate);
    if let Some(name) = peer.and_then(certificate_name) {
        principal::set_source(attributes, name);
    }
    let own = tls.local_certificate_properties.as_ref();
    if let Some(name) = own.and_then(certificate_name) {
        principal::set_destination(attributes, name);
    }
}

/// Returns the first URI of a certificate, else its subject.
fn certificate_name(certificate: &CertificateProperties) -> Option<&str> {
    let uri = certificate.subject_alt_name.iter().find_map(|name| match name.san.as_ref()? {
        San::Uri(uri) if !uri.is_empty() => Some(uri.as_str()),
        _ => None,
    });
    uri.or(Some(certificate.subject.as_str())).filter(|name| !name.is_empty())
}

/// Returns the metadata that a check of this server added to the request.
fn decision(metadata: Option<&Metadata>) -> Option<&Struct> {
    let filters = &metadata?.filter_metadata;
    let own = DECISIONS.iter().find_map(|filter| filters.get(*filter)?.fields.get(METADATA));
    match own?.kind.as_ref()? {
        Kind::StructValue(decision) => Some(decision),
        _ => None,
    }
}

fn set_decision(attributes: &mut AttributeBuilder, decision: &Struct) {
    if let Some(Kind::NumberValue(code)) = kind(decision, "code") {
        attributes.set(standard!("check.error_code"), *code as i64);
    }
    for (attribute, name) in [
        (standard!("check.error_message"), "message"),
        (standard!("check.decision_id"), "decision_id"),
        (standard!("check.rules"), "rules"),
    ] {
        attributes.set_some(attribute, text(decision, name));
    }
    // Names that access logs do not have, such as DNS names.
    if !attributes.has(standard!("source.principal"))
        && let Some(name) = text(decision, "source_principal")
    {
        principal::set_source(attributes, name);
    }
}

fn text<'s>(structure: &'s Struct, name: &str) -> Option<&'s str> {
    match kind(structure, name)? {
        Kind::StringValue(text) => Some(text),
        _ => None,
    }
}

fn set_request(attributes: &mut AttributeBuilder, request: &HttpRequestProperties) {
    let path = match request.original_path.as_str() {
        "" => &request.path,
        original => original,
    };
    let method = match request.request_method() {
        RequestMethod::MethodUnspecified => "",
        method => method.as_str_name(),
    };
    // The headers with separate fields.
    let fields = [
        (":authority", request.authority.as_str()),
        (":method", method),
        (":path", path),
        ("referer", &request.referer),
        ("user-agent", &request.user_agent),
        ("x-forwarded-for", &request.forwarded_for),
        ("x-request-id", &request.request_id),
    ];
    let parts = HttpParts { method, host: &request.authority, scheme: &request.scheme, path };
    set_http(attributes, parts, |name| match request.request_headers.get(name) {
        Some(value) => Some(value.into()),
        None => fields.iter().find(|(field, _)| *field == name).map(|(_, value)| (*value).into()),
    });
    attributes.set_text(standard!("request.id"), &request.request_id);
    attributes.set(standard!("request.size"), number(request.request_body_bytes));
    attributes.set(
        standard!("request.total_size"),
        number(request.request_headers_bytes + request.request_body_bytes),
    );
    attributes.set_with(standard!("request.headers"), || {
        let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
        let sent = request.request_headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Some(fields.chain(sent).collect::<StringMap>())
    });
}

fn set_response(attributes: &mut AttributeBuilder, response: &HttpResponseProperties) {
    attributes.set_some(standard!("response.code"), response.response_code.map(i64::from));
    attributes.set(standard!("response.size"), number(response.response_body_bytes));
    let total = response.response_headers_bytes + response.response_body_bytes;
    attributes.set(standard!("response.total_size"), number(total));
    for (attribute, name) in [
        (standard!("response.grpc_status"), "grpc-status"),
        (standard!("response.grpc_message"), "grpc-message"),
    ] {
        attributes.set_with(attribute, || {
            let trailer = response.response_trailers.get(name);
            trailer.or_else(|| response.response_headers.get(name)).map(String::as_str)
        });
    }
    // The entry is the only trace of a request whose check failed.
    if response.response_code_details.starts_with(CHECK_FAILED)
        && !attributes.has(standard!("check.error_message"))
    {
        attributes.set_text(standard!("check.error_message"), &response.response_code_details);
    }
    attributes.set_with(standard!("response.headers"), || {
        let headers = response.response_headers.iter().chain(&response.response_trailers);
        let headers: StringMap = headers.map(|(name, value)| (name.as_str(), value.as_str())).collect();
        (!headers.is_empty()).then_some(headers)
    });
}

fn number(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn length(duration: prost_types::Duration) -> Option<AttributeValue> {
    Some(std::time::Duration::try_from(duration).ok()?.into())
}

/// Adds a duration to a time.
fn later(start: Option<Timestamp>, after: Option<prost_types::Duration>) -> Option<Timestamp> {
    let (start, after) = (start?, after?);
    let mut time = Timestamp {
        seconds: start.seconds.checked_add(after.seconds)?,
        nanos: start.nanos.checked_add(after.nanos)?,
    };
    time.normalize();
    Some(time)
}
