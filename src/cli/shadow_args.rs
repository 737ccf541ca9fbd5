//! Flags of evaluations in the shadow.

use std::{sync::Arc, time::Duration};

use clap::Args;
use tokio::runtime::Handle;

use super::{config_args::ConfigArgs, value_parsers};
use mixer_adapter_engine::{ConfigStatus, Mixer, Shadow, ShadowOptions};
use mixer_adapter_streams::ScopedUrl;

/// The second configuration, and the limits of evaluations in the shadow.
#[derive(Debug, Args)]
#[command(next_help_heading = "Configuration")]
pub(super) struct ShadowArgs {
    /// A second configuration, on trial [default: none]
    ///
    /// It is evaluated after each answer and never decides. As in --config. Differences from the answers are counted, logged and shown. Can be repeated
    #[arg(long, value_name = "DIR|URL", value_delimiter = ';')]
    shadow: Vec<ScopedUrl>,

    /// Share of calls that are evaluated in the shadow, from 0 to 1
    ///
    /// By --shadow, and by rules with the annotation mixer-adapter/mode: shadow
    #[arg(long, hide_short_help = true, value_name = "SHARE", default_value_t = 1.0, value_parser = value_parsers::share)]
    shadow_sample: f64,

    /// Maximum number of concurrent evaluations in the shadow
    #[arg(long, hide_short_help = true, value_name = "N", default_value_t = 64)]
    shadow_evaluations: usize,

    /// Maximum memory of calls that are evaluated in the shadow or wait for it; further ones are dropped
    #[arg(long, hide_short_help = true, value_name = "BYTES", default_value = "8Mi", value_parser = value_parsers::bytes)]
    shadow_memory: usize,

    /// Maximum time from an answer to the end of its evaluation in the shadow
    #[arg(long, hide_short_help = true, value_name = "DURATION", default_value = "5s", value_parser = value_parsers::duration)]
    shadow_timeout: Duration,
}

impl ShadowArgs {
    /// Creates the shadow of an engine, whose evaluations are on a runtime.
    pub(super) fn shadow(&self, runtime: &Handle) -> Shadow {
        let options = ShadowOptions::default()
            .sample(self.shadow_sample)
            .evaluations(self.shadow_evaluations)
            .bytes(self.shadow_memory)
            .timeout(self.shadow_timeout)
            .runtime(Some(runtime.clone()));
        Shadow::new(options)
    }

    /// Creates the engine of the second configuration, if there is one.
    pub(super) fn engine(&self) -> Option<Arc<Mixer>> {
        (!self.shadow.is_empty()).then(|| Arc::new(Mixer::new()))
    }

    /// The arguments of the second configuration: the sources of this one, and the policies of the one in use.
    pub(super) fn configuration(&self, in_use: &ConfigArgs) -> ConfigArgs {
        let mut arguments = in_use.clone();
        arguments.config.clone_from(&self.shadow);
        arguments
    }
}

/// Returns the warnings of a second configuration, whose faults do not make the server unready.
pub(super) fn warnings(mixer: &Mixer, status: &ConfigStatus) -> Vec<String> {
    let mut warnings = if status.refusal.is_empty() { status.pending() } else { status.refusal.clone() };
    warnings.extend(status.warnings());
    let second = mixer.shadow_configuration().and_then(|engine| engine.snapshot());
    if let (Some(second), Some(in_use)) = (second, mixer.snapshot()) {
        let undeclared = Shadow::undeclared(&second, &in_use);
        warnings.extend(undeclared.into_iter().map(|name| {
            format!("no request has the attribute {name}: the configuration in use does not declare it with the same type")
        }));
    }
    warnings.into_iter().map(|warning| format!("--shadow: {warning}")).collect()
}
