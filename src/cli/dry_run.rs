//! An engine without a server, whose calls have no effects outside of the process.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;

use super::{
    AddAdapters,
    config_args::{ConfigArgs, SAMPLE},
    faults::Texts,
};
use mixer_adapter_config::{ConfigSet, Kind, Topic, ValidationError};
use mixer_adapter_engine::{
    Mixer,
    build::{Connect, Connecting, Connector, HandlerSpec, SnapshotBuilder, unreported},
    remote,
    trace::{Step, Trace},
};
use mixer_adapter_host::{
    Host,
    handler::{Closing, TableLimits},
};

/// Builds engines with the adapters of this program.
pub(super) struct DryRun {
    runtime: tokio::runtime::Runtime,
    host: Arc<Host>,
    connect: Connections,
}

/// A configuration that was read and not built yet.
pub(super) struct Loaded<'a> {
    arguments: &'a ConfigArgs,
    set: ConfigSet,
    faults: Vec<ValidationError>,
    texts: Texts,
    /// Whether the faults were printed.
    is_printed: bool,
}

impl<'a> Loaded<'a> {
    /// Reads the configuration of the command line.
    pub(super) fn read(arguments: &'a ConfigArgs, sample: Option<&'static str>) -> anyhow::Result<Self> {
        let (set, faults) = arguments.read(sample)?;
        let mut texts = Texts::default();
        if let Some(sample) = sample {
            texts.add(SAMPLE, sample);
        }
        Ok(Self { arguments, set, faults, texts, is_printed: false })
    }

    /// The full names of the instances.
    pub(super) fn instances(&self) -> Vec<String> {
        self.set.of_role(Kind::Instance).map(|entry| entry.name().to_string()).collect()
    }
}

impl DryRun {
    /// Creates the runtime and the adapters. With `call`, reports are delivered and remote adapters called.
    pub(super) fn new(add: AddAdapters<'_>, call: bool) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.context("cannot start the runtime")?;
        let closing = Closing::on(runtime.handle().clone());
        let adapters = super::adapters(&runtime, add)?;
        // Each engine begins with the state of its configuration.
        let limits = TableLimits::default().state_retention(Duration::ZERO);
        let host = Arc::new(Host::new(adapters, limits, closing.clone()));
        let connector = Connector { host: host.clone(), remote: remote::Options::default(), closing };
        Ok(Self { runtime, host, connect: Connections { connector, call } })
    }

    /// Returns the builder of a snapshot of a configuration.
    pub(super) fn builder(&self, set: &ConfigSet, faults: Vec<ValidationError>) -> SnapshotBuilder {
        let _entered = self.runtime.enter();
        SnapshotBuilder::new(set, faults, &self.host)
    }

    /// Builds an engine, runs `work` with it, and closes its handlers. Prints faults that may be the reason of an answer.
    pub(super) fn with_engine<T>(
        &self,
        loaded: &mut Loaded<'_>,
        work: impl AsyncFnOnce(&Mixer) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.runtime.block_on(async {
            let mixer = self.engine(loaded).await?;
            work(&mixer).await
        })
    }

    async fn engine(&self, loaded: &mut Loaded<'_>) -> anyhow::Result<Mixer> {
        let builder = self.builder(&loaded.set, loaded.faults.clone());
        let built = builder.build(None, &self.connect, &loaded.arguments.options()?).await;
        let (built, faults) = match built {
            Ok((snapshot, faults)) => (Some(snapshot), faults),
            Err(faults) => (None, faults),
        };
        let is_first = !std::mem::replace(&mut loaded.is_printed, true);
        if is_first {
            for fault in loaded.texts.locate(faults.iter().filter(|fault| is_shown(fault))) {
                super::print_error(&fault.to_string());
            }
        }
        let built = built.context(
            "the configuration has errors; `validate` lists all faults, --lenient skips faulty resources",
        )?;
        if is_first && built.size().rules == 0 {
            super::print_error(
                "warning: the configuration has no rule with an effect: every check is allowed and every quota granted",
            );
        }
        let mixer = Mixer::new();
        mixer.replace(built);
        Ok(mixer)
    }

    /// Closes all handlers.
    pub(super) fn close(self) {
        let timeout = self.connect.connector.remote.close_timeout;
        self.runtime.block_on(self.host.close(timeout));
    }
}

/// Describes the attributes and the quotas of a request that the configuration does not have, with similar names.
pub(super) fn unknown_names(trace: &Trace) -> impl Iterator<Item = String> {
    let is_unknown =
        |step: &&Step| matches!(step, Step::UndeclaredAttribute { .. } | Step::UnknownQuota { .. });
    trace.steps.iter().filter(is_unknown).map(|step| step.to_string().trim_end().to_owned())
}

/// Whether a fault may be the reason of an answer. `validate` shows all.
fn is_shown(fault: &ValidationError) -> bool {
    fault.is_error() || fault.topic == Topic::InvalidConstant
}

/// Opens the handlers that may be called.
struct Connections {
    connector: Connector,
    call: bool,
}

impl Connect for Connections {
    fn connect<'a>(&'a self, spec: &'a HandlerSpec) -> Connecting<'a> {
        Box::pin(async move {
            if self.call {
                return self.connector.connect(spec).await;
            }
            let is_called = spec.is_local_with_answers();
            let local = if is_called { Some(self.connector.connect(spec).await?) } else { None };
            Ok(unreported(local))
        })
    }
}
