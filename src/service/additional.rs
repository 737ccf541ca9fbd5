use prometheus_client::collector::Collector;
use tonic::service::Routes;

use super::{admin::FailureCounters, rpc::Rpc};
use mixer_adapter_host::handler::BoxFuture;

/// Services of a server besides its adapters and the Mixer API.
pub(super) struct AdditionalServices {
    /// The full names.
    pub(super) names: Vec<&'static str>,
    /// The unary methods by path.
    pub(super) rpcs: Vec<(&'static str, Rpc)>,
    /// Adds the other methods.
    pub(super) routes: Box<dyn FnOnce(Routes) -> Routes + Send>,
    /// An encoded `FileDescriptorSet` for reflection.
    pub(super) descriptors: &'static [u8],
    /// Metrics.
    pub(super) collector: Box<dyn Collector>,
    /// Failures for the state on the admin port.
    pub(super) failure_counters: FailureCounters,
    /// Ends open streams when the server stops, which otherwise waits for them.
    pub(super) stop: Box<dyn FnOnce() + Send>,
    /// Finishes pending work after the last call, before handlers close.
    pub(super) finish: BoxFuture<'static, ()>,
}
