//! The services by which Envoy asks for decisions and sends access logs, answered by the rules and adapters of a Mixer
//! (docs/envoy.md).

mod attributes;
mod authorization;
mod decision;
mod decision_id;
mod headers;
mod options;
pub mod proto;
mod status;

use std::sync::Arc;

use mixer_adapter_engine::Mixer;

pub use attributes::{HostPattern, HostPatternError};
pub use options::{FailureAnswer, MappingOptions, Options};

use decision_id::DecisionIds;

/// The services, which share an engine.
#[derive(Debug)]
pub struct Services {
    mixer: Arc<Mixer>,
    options: Options,
    ids: DecisionIds,
}

impl Services {
    /// Creates the services of an engine.
    pub fn new(mixer: Arc<Mixer>, options: Options) -> Self {
        Self { mixer, options, ids: DecisionIds::new() }
    }
}
