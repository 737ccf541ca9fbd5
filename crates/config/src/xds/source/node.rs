use std::collections::BTreeMap;

use tonic::Status;

use crate::{proto::envoy::config::core::v3::Node, stream::source::SinkId};

/// How clients of gRPC call themselves, `gRPC Go` for example.
const GRPC: &str = "gRPC";

/// What a stream is asked for, and by whom. Only the first request has to say who asks (docs/behaviour/xds.md#rule-1-node).
#[derive(Debug)]
pub(super) struct RequestContext {
    only: Option<&'static str>,
    explicit: bool,
}

impl RequestContext {
    /// A stream of all types, or of one.
    pub(super) fn new(only: Option<&'static str>) -> Self {
        Self { only, explicit: false }
    }

    /// The type a request is about.
    pub(super) fn type_url(&mut self, type_url: &str, node: Option<&Node>) -> Result<String, Status> {
        if let Some(node) = node {
            self.explicit = node.user_agent_name.starts_with(GRPC);
        }
        match self.only {
            None if type_url.is_empty() => {
                Err(Status::invalid_argument("a request on a stream of all types needs a type_url"))
            }
            Some(only) if !type_url.is_empty() && type_url != only => {
                Err(Status::invalid_argument(format!("this stream serves {only} alone, not {type_url}")))
            }
            Some(only) => Ok(only.to_owned()),
            None => Ok(type_url.to_owned()),
        }
    }

    /// Whether the client says so when it wants everything.
    pub(super) fn explicit(&self) -> bool {
        self.explicit
    }
}

/// Who a client is, for those who look at the source.
pub(super) fn sink_id(node: &Node) -> SinkId {
    let annotations = [("cluster", &node.cluster), ("user_agent_name", &node.user_agent_name)];
    let said = annotations.into_iter().filter(|(_, value)| !value.is_empty());
    let annotations: BTreeMap<_, _> = said.map(|(key, value)| (key.to_owned(), value.clone())).collect();
    SinkId { id: node.id.clone(), annotations }
}
