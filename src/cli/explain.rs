use std::{process::ExitCode, sync::Arc, time::Instant};

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use tonic::Status;

use super::{
    attribute_args::{AttributeArgs, how_to_write},
    config_args::{ConfigArgs, SAMPLE},
    faults::Texts,
    mixer::{AmountArgs, TimedAnswer, all_words, check_request, print_check, print_report, report_request},
    rpc_error::RpcError,
    value_parsers,
};
use crate::service::mixer::{explain_check, explain_report};
use mixer_adapter_config::{Fault, Topic};
use mixer_adapter_core::{framework::dynamic::DynamicTemplate, template::Variety};
use mixer_adapter_engine::{
    HandlerBackend, Mixer,
    build::{BackendSpec, BoxBackend, Connect, Connector, HandlerSpec, SnapshotBuilder},
    remote,
};
use mixer_adapter_host::{
    Host,
    handler::{AdaptersBuilder, BoxFuture, Caller, Closing, TableLimits},
};

pub(super) const EXAMPLES: &str = concat!(
    "\
Examples:
  mixer-adapter explain --attributes request.path=/admin
  mixer-adapter explain --config config/ --attributes @request.yaml
  mixer-adapter explain --config config/ --quota requests --amount 5 --attributes source.name=alice
  mixer-adapter explain --config config/ --report --attributes response.code=200 --json | jq .trace.steps

Rules are evaluated, instances built and adapters of this program called. Calls of remote adapters and reports are
shown as NOT MADE and have no effect on the answer; --call makes them, too.

",
    how_to_write!(),
    "
Attributes of the configuration's manifests have the types of the manifests.

Exit codes: 0 an answer, 1 an error, or a faulty configuration, 2 usage error."
);

/// Explain how a configuration answers a request, without a server
#[derive(Debug, Args)]
pub(super) struct Explain {
    #[command(flatten)]
    configuration: ConfigArgs,

    #[command(flatten)]
    attributes: AttributeArgs,

    /// Request this quota, too
    #[arg(long, value_name = "NAME", env = "MIXER_ADAPTER_QUOTA")]
    quota: Option<String>,

    #[command(flatten)]
    amount: AmountArgs,

    /// Send a report of the requests instead of a check
    #[arg(long, env = "MIXER_ADAPTER_REPORT", value_parser = value_parsers::switch(), conflicts_with = "quota")]
    report: bool,

    /// Call remote adapters, and deliver reports
    #[arg(long, env = "MIXER_ADAPTER_CALL", value_parser = value_parsers::switch())]
    call: bool,

    /// Print JSON
    #[arg(long, env = "MIXER_ADAPTER_JSON", value_parser = value_parsers::switch())]
    json: bool,
}

impl Explain {
    pub(super) fn run(
        self,
        add: impl FnOnce(AdaptersBuilder) -> AdaptersBuilder,
        sample: Option<&'static str>,
    ) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.context("cannot start the runtime")?;
        let closing = Closing::on(runtime.handle().clone());
        let adapters = super::adapters(&runtime, add)?;
        let host = Arc::new(Host::new(adapters, TableLimits::default(), closing.clone()));
        runtime.block_on(async {
            let connect = Connections {
                connector: Connector { host: host.clone(), remote: remote::Options::default(), closing },
                call: self.call,
            };
            let mixer = self.mixer(&host, &connect, sample).await?;
            let code = self.explain(&mixer).await;
            // Handlers close after their last reference.
            drop(mixer);
            host.close(connect.connector.remote.close_timeout).await;
            code
        })
    }

    /// Returns an engine that uses the configuration.
    async fn mixer(
        &self,
        host: &Host,
        connect: &dyn Connect,
        sample: Option<&'static str>,
    ) -> anyhow::Result<Mixer> {
        let (set, faults) = self.configuration.read(sample)?;
        let builder = SnapshotBuilder::new(&set, faults, host);
        let built = builder.build(None, connect, &self.configuration.options()).await;
        let (built, faults) = match built {
            Ok((snapshot, faults)) => (Some(snapshot), faults),
            Err(faults) => (None, faults),
        };
        let mut texts = Texts::default();
        if let Some(sample) = sample {
            texts.add(SAMPLE, sample);
        }
        for fault in texts.locate(faults.iter().filter(|fault| is_shown(fault))) {
            super::print_error(&fault.to_string());
        }
        let mixer = Mixer::new();
        mixer.replace(built.context(
            "the configuration has errors; `validate` lists all faults, --lenient skips faulty resources",
        )?);
        Ok(mixer)
    }

    async fn explain(&self, mixer: &Mixer) -> anyhow::Result<ExitCode> {
        let snapshot = mixer.snapshot().context("there is no configuration")?;
        let types = snapshot.vocabulary();
        let caller = Caller::default();
        let start = Instant::now();
        if self.report {
            let request = report_request(&self.attributes.requests(types)?, all_words());
            let (answer, trace) = explain_report(mixer, request.clone(), caller).await;
            let asked = TimedAnswer { answer, trace: Some(trace), took: start.elapsed() };
            return print_report(&request, &asked, self.json, RpcError::of_call);
        }
        let mut request = check_request(&self.attributes.request(types)?, all_words());
        if let Some(quota) = &self.quota {
            self.amount.add_to(quota, &mut request);
        }
        let (answer, trace) = explain_check(mixer, request.clone(), caller).await;
        let asked = TimedAnswer { answer, trace: Some(trace), took: start.elapsed() };
        print_check(&request, &asked, self.json, RpcError::of_call)
    }
}

/// Whether a fault may be the reason of an answer. `validate` shows all.
fn is_shown(fault: &Fault) -> bool {
    fault.is_error() || fault.topic == Topic::InvalidConstant
}

/// Opens the handlers that may be called.
struct Connections {
    connector: Connector,
    call: bool,
}

impl Connect for Connections {
    fn connect<'a>(&'a self, spec: &'a HandlerSpec) -> BoxFuture<'a, Result<BoxBackend, Vec<Fault>>> {
        Box::pin(async move {
            match self.call || is_local(spec) {
                true if self.call => self.connector.connect(spec).await,
                true => Ok(Box::new(DryRunHandler(Some(self.connector.connect(spec).await?))) as BoxBackend),
                false => Ok(Box::new(DryRunHandler(None)) as BoxBackend),
            }
        })
    }
}

/// Whether a handler has calls without effects outside of the process. An adapter that only reports may listen on a port
/// or write files as soon as it is opened.
fn is_local(spec: &HandlerSpec) -> bool {
    let BackendSpec::InProcess { adapter, .. } = &spec.backend else { return false };
    let used = spec.templates();
    let mut templates = adapter.templates.iter().filter(|template| used.contains(template.name));
    templates.any(|template| template.variety != Variety::Report)
}

/// A handler whose calls stay in the process; `None` if all of its calls are skipped.
struct DryRunHandler(Option<BoxBackend>);

impl HandlerBackend for DryRunHandler {
    fn call<'a>(
        &'a self,
        template: &'a DynamicTemplate,
        request: Bytes,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<Bytes, Status>> {
        match &self.0 {
            Some(opened) => opened.call(template, request, caller),
            None => Box::pin(std::future::ready(Err(Status::unavailable("not called")))),
        }
    }

    fn adapter_config(&self) -> Option<Bytes> {
        self.0.as_ref().and_then(|opened| opened.adapter_config())
    }

    fn is_called(&self, template: &DynamicTemplate) -> bool {
        self.0.is_some() && template.variety() != Variety::Report
    }
}
