//! The services by which Envoy asks for decisions and sends access logs, answered by the rules and adapters of a Mixer
//! (docs/envoy.md).

mod access_log;
mod attributes;
mod authorization;
mod configuration;
mod counters;
mod decision;
mod decision_id;
mod headers;
mod metadata;
mod options;
pub mod proto;
mod rate_limit;
mod status;

use std::sync::Arc;

use mixer_adapter_engine::Mixer;
use tokio::runtime::Handle;

pub use attributes::{HostPattern, HostPatternError};
pub use counters::{Counters, RateLimitOutcome};
pub use options::{FailureAnswer, MappingOptions, Options};

use access_log::LogQueue;
use configuration::Configuration;
use decision_id::DecisionIds;

/// The services, which share an engine.
#[derive(Debug)]
pub struct Services {
    mixer: Arc<Mixer>,
    options: Options,
    ids: DecisionIds,
    counters: Arc<Counters>,
    log_queue: LogQueue,
    configuration: Configuration,
}

impl Services {
    /// Creates the services of an engine. Access logs are reported by tasks of `runtime`.
    pub fn new(mixer: Arc<Mixer>, options: Options, runtime: &Handle) -> Self {
        let counters = Arc::<Counters>::default();
        let configuration = Configuration::new(mixer.clone());
        let log_queue =
            LogQueue::start(configuration.clone(), options.mapping.clone(), counters.clone(), runtime);
        Self { mixer, options, ids: DecisionIds::new(), counters, log_queue, configuration }
    }

    /// Waits until all entries of access logs that were received have been reported.
    pub async fn flush(&self) {
        self.log_queue.flush().await;
    }

    /// The counts of what the services did.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}
