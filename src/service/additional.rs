use prometheus_client::collector::Collector;
use tonic::service::Routes;

use super::{admin::FailureCounters, rpc::Rpcs};
use mixer_adapter_host::handler::BoxFuture;

/// Services of a server besides its adapters and the Mixer API.
#[derive(Default)]
pub(super) struct AdditionalServices {
    /// The full names.
    pub(super) names: Vec<&'static str>,
    /// The unary methods by path.
    pub(super) rpcs: Rpcs,
    /// Functions that add the other methods.
    pub(super) routes: Vec<Box<dyn FnOnce(Routes) -> Routes + Send>>,
    /// Encoded `FileDescriptorSet`s for reflection.
    pub(super) descriptors: Vec<&'static [u8]>,
    /// Metrics, of the program, too.
    pub(super) collectors: Vec<Box<dyn Collector>>,
    /// Failures for the state on the admin port.
    pub(super) failure_counters: Vec<FailureCounters>,
    /// End open streams when the server stops, which otherwise waits for them.
    pub(super) stops: Vec<Box<dyn FnOnce() + Send>>,
    /// Finish pending work after the last call, before handlers close.
    pub(super) finish: Vec<BoxFuture<'static, ()>>,
}
