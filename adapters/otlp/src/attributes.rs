//! Attributes of resources, spans, log records and data points.

use std::collections::{BTreeMap, HashSet};

use mixer_adapter_core::value::Value;
use mixer_adapter_telemetry::otlp::{KeyValue, attribute, encode_resource};
use prost::bytes::Bytes;

/// The name of the resource.
const SERVICE_NAME: &str = "service.name";

/// Decides which values of an instance are attributes of its resource.
#[derive(Debug)]
pub(super) struct Attributes {
    /// The attributes of every resource, and these encoded.
    fixed: Vec<KeyValue>,
    encoded: Bytes,
    of_resource: HashSet<String>,
}

impl Attributes {
    pub(super) fn new(fixed: Vec<KeyValue>, of_resource: HashSet<String>) -> Self {
        let encoded = encode_resource(fixed.clone());
        Self { fixed, encoded, of_resource }
    }

    /// Returns the encoded resource and the other attributes of an instance with these values, and with a monitored resource of a type.
    pub(super) fn split(
        &self,
        values: &BTreeMap<String, Value>,
        (resource_type, dimensions): (&str, &BTreeMap<String, Value>),
    ) -> (Bytes, Vec<KeyValue>) {
        let (mut resource, attributes) = self.partition(values);
        resource.extend(present(dimensions));
        if !resource_type.is_empty() {
            resource.push(attribute("monitored_resource_type", resource_type));
        }
        (self.resource(resource), attributes)
    }

    /// As [`split`](Self::split), for a span: the resource has the name of its workload, unless the configuration has a name.
    pub(super) fn split_span(
        &self,
        tags: &BTreeMap<String, Value>,
        workload: &str,
    ) -> (Bytes, Vec<KeyValue>) {
        let (mut resource, attributes) = self.partition(tags);
        let mut named = self.fixed.iter().chain(&resource);
        if !workload.is_empty() && !named.any(|pair| pair.key == SERVICE_NAME) {
            resource.push(attribute(SERVICE_NAME, workload));
        }
        (self.resource(resource), attributes)
    }

    fn partition(&self, values: &BTreeMap<String, Value>) -> (Vec<KeyValue>, Vec<KeyValue>) {
        present(values).partition(|pair| self.of_resource.contains(&pair.key))
    }

    /// Encodes a resource with further attributes; its own attributes have precedence over fixed ones.
    fn resource(&self, mut own: Vec<KeyValue>) -> Bytes {
        if own.is_empty() {
            return self.encoded.clone();
        }
        let names: HashSet<&str> = own.iter().map(|pair| &*pair.key).collect();
        let fixed: Vec<_> = self.fixed.iter().filter(|pair| !names.contains(&*pair.key)).cloned().collect();
        own.extend(fixed);
        encode_resource(own)
    }
}

/// Returns the values that are present as attributes.
fn present(values: &BTreeMap<String, Value>) -> impl Iterator<Item = KeyValue> {
    let present = values.iter().filter(|(_, value)| **value != Value::Unspecified);
    present.map(|(name, value)| attribute(name, value))
}
