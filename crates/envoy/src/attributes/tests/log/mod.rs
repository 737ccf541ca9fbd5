//! Attributes of access logs.

mod connection;
mod request;

use std::sync::Arc;

use mixer_adapter_core::proto::Any;
use mixer_adapter_engine::attribute::{AttributeValue, Bag};
use prost::Message as _;
use prost_types::{Duration, Struct, Timestamp, Value, value::Kind};

use super::{Attributes, all, assert_has, ip, socket, texts, vocabulary};
use crate::{
    attributes::{LogSender, Node, http_attributes, tcp_attributes},
    options::MappingOptions,
    proto::envoy::{
        config::core::v3::{Metadata, RequestMethod},
        data::accesslog::v3::{
            AccessLogCommon, AccessLogType, ConnectionProperties, HttpAccessLogEntry, HttpRequestProperties,
            HttpResponseProperties, ResponseFlags, TcpAccessLogEntry, TlsProperties,
            response_flags::Unauthorized,
            tls_properties::{
                CertificateProperties,
                certificate_properties::{SubjectAltName, subject_alt_name::San},
            },
        },
    },
};

fn request(entry: &HttpAccessLogEntry) -> Attributes {
    request_of(entry, &LogSender::default())
}

fn request_of(entry: &HttpAccessLogEntry, sender: &LogSender) -> Attributes {
    all(&http_attributes(entry, sender, Bag::new(vocabulary()), &MappingOptions::default()).unwrap())
}

fn connection(entry: &TcpAccessLogEntry, sender: &LogSender) -> Attributes {
    all(&tcp_attributes(entry, sender, Bag::new(vocabulary()), &MappingOptions::default()).unwrap())
}

fn with(common: AccessLogCommon) -> HttpAccessLogEntry {
    HttpAccessLogEntry { common_properties: Some(common), ..HttpAccessLogEntry::default() }
}

fn fields(fields: &[(&str, Kind)]) -> Struct {
    let value = |kind: &Kind| Value { kind: Some(kind.clone()) };
    Struct { fields: fields.iter().map(|(name, kind)| ((*name).to_owned(), value(kind))).collect() }
}

fn text(value: &str) -> Kind {
    Kind::StringValue(value.to_owned())
}

fn node() -> Node {
    let metadata = fields(&[
        ("NAME", text("web-1")),
        ("NAMESPACE", text("shop")),
        ("WORKLOAD_NAME", text("web")),
        ("OWNER", text("kubernetes://apis/apps/v1/namespaces/shop/deployments/web")),
        ("LABELS", Kind::StructValue(fields(&[("app", text("web"))]))),
    ]);
    Node { id: "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local".to_owned(), metadata: Some(metadata) }
}
