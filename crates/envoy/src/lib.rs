//! The services by which Envoy requests decisions and sends access logs, answered by the rules and adapters of a Mixer
//! (docs/envoy/README.md).

/// A standard attribute; another name does not compile.
macro_rules! standard {
    ($name:literal) => {
        const { mixer_adapter_engine::attribute::Standard::named($name) }
    };
}

mod access_log;
mod answer;
mod attributes;
mod authorization;
mod configuration;
mod counters;
mod decision;
mod denial;
mod headers;
mod metadata;
mod missing_settings;
mod options;
mod outcome;
pub mod proto;
mod rate_limit;
mod request_headers;
mod status;
mod struct_writer;
mod tenants;

use std::sync::Arc;

use mixer_adapter_engine::{DecisionIds, Mixer};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

pub use access_log::AccessLogServer;
pub use answer::{AuthorizationAnswer, EncodedResponse, RateLimitAnswer};
pub use attributes::{HostPattern, HostPatternError};
pub use counters::Counters;
pub use headers::{AddedHeader, AddedHeaderError};
pub use options::{FailureAnswer, MappingOptions, Options};
pub use outcome::RateLimitOutcome;
pub use tenants::TenantCounts;

use access_log::LogQueue;
use attributes::ConnectionCount;
use configuration::Configuration;
use missing_settings::MissingSettings;
use rate_limit::GiveBacks;

/// The services, which share an engine.
#[derive(Debug)]
pub struct Services {
    mixer: Arc<Mixer>,
    options: Options,
    ids: DecisionIds,
    counters: Arc<Counters>,
    log_queue: LogQueue,
    give_backs: GiveBacks,
    /// The connections of all streams of access logs.
    connections: Arc<ConnectionCount>,
    configuration: Configuration,
    missing: Arc<MissingSettings>,
    /// Ends streams of access logs.
    stopping: CancellationToken,
}

impl Services {
    /// Creates the services of an engine. Access logs are reported by tasks of `runtime`, and hits of rate limits given back.
    pub fn new(mixer: Arc<Mixer>, options: Options, runtime: &Handle) -> Self {
        let counters = Arc::<Counters>::default();
        let (missing, stopping) = (Arc::<MissingSettings>::default(), CancellationToken::new());
        let configuration = Configuration::new(mixer.clone());
        let log_queue = LogQueue::start(
            configuration.clone(),
            options.mapping.clone(),
            counters.clone(),
            missing.clone(),
            runtime,
        );
        Self {
            mixer,
            options,
            ids: DecisionIds::default(),
            counters,
            log_queue,
            give_backs: GiveBacks::new(runtime),
            connections: Arc::default(),
            configuration,
            missing,
            stopping,
        }
    }

    /// Ends streams of access logs: Envoy continues on another connection.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// Returns the data that rules read and Envoy does not send, with the settings for it. Each was logged once.
    pub fn missing_settings(&self) -> Vec<String> {
        self.missing.texts()
    }

    /// Waits until all received entries of access logs are reported, and all pending hits of rate limits are given back.
    pub async fn flush(&self) {
        tokio::join!(self.log_queue.flush(), self.give_backs.flush());
    }

    /// The counters of the services.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }
}
