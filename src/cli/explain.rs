use std::{process::ExitCode, sync::Arc, time::Instant};

use anyhow::Context as _;
use bytes::Bytes;
use clap::Args;
use tonic::Status;

use super::{
    ask::{Amount, Asked, all_words, check_request, print_check, print_report, report_request},
    attributes::{Attributes, how_to_write},
    configuration::Configuration,
    failure::Failure,
    values,
};
use crate::service::mixer::{explain_check, explain_report};
use mixer_adapter_core::{framework::dynamic::DynamicTemplate, template::Variety};
use mixer_adapter_engine::{
    Mixer, Target,
    build::{Blueprint, Connect, Connector, HandlerSpec, OpenFault, Opened, Use},
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

Rules are evaluated, instances built and adapters of this program called; what would leave the process is shown as
NOT MADE, and everything goes on as if it were not configured: calls of adapters that run elsewhere, and reports.
With --call these are made, too.

",
    how_to_write!(),
    "
The attributes of the configuration's own manifests have their types.

Exit codes: 0 there is an answer, 1 there is an error in its place, or the configuration is faulty, 2 the command line
is wrong."
);

/// Say what a configuration makes of a request, and why, without a server
#[derive(Debug, Args)]
pub(super) struct Explain {
    #[command(flatten)]
    configuration: Configuration,

    #[command(flatten)]
    attributes: Attributes,

    /// Ask for this quota, too
    #[arg(long, value_name = "NAME", env = "MIXER_ADAPTER_QUOTA")]
    quota: Option<String>,

    #[command(flatten)]
    amount: Amount,

    /// Report the requests in place of checking one
    #[arg(long, env = "MIXER_ADAPTER_REPORT", value_parser = values::switch(), conflicts_with = "quota")]
    report: bool,

    /// Call adapters that run elsewhere, and deliver reports
    #[arg(long, env = "MIXER_ADAPTER_CALL", value_parser = values::switch())]
    call: bool,

    /// Print JSON
    #[arg(long, env = "MIXER_ADAPTER_JSON", value_parser = values::switch())]
    json: bool,
}

impl Explain {
    pub(super) fn run(
        self,
        add: impl FnOnce(AdaptersBuilder) -> AdaptersBuilder,
        sample: Option<&'static str>,
    ) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.context("the runtime cannot start")?;
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
            // Handlers close when nothing holds them.
            drop(mixer);
            host.close(connect.connector.remote.close_timeout).await;
            code
        })
    }

    /// An engine with the configuration in use.
    async fn mixer(
        &self,
        host: &Host,
        connect: &dyn Connect,
        sample: Option<&'static str>,
    ) -> anyhow::Result<Mixer> {
        let (set, faults) = self.configuration.read(sample)?;
        let blueprint = Blueprint::read(&set, faults, host);
        let built = blueprint.build(None, connect, &self.configuration.options()).await;
        let (built, faults) = match built {
            Ok((snapshot, faults)) => (Some(snapshot), faults),
            Err(faults) => (None, faults),
        };
        for fault in faults.iter().filter(|fault| fault.is_error()) {
            super::print_error(&fault.to_string());
        }
        let mixer = Mixer::new();
        mixer.replace(
            built.context("the configuration is faulty; `validate` tells more, --lenient leaves it out")?,
        );
        Ok(mixer)
    }

    async fn explain(&self, mixer: &Mixer) -> anyhow::Result<ExitCode> {
        let snapshot = mixer.snapshot().context("there is no configuration")?;
        let types = snapshot.vocabulary();
        let caller = Caller { connection: 0, deadline: None };
        let start = Instant::now();
        if self.report {
            let request = report_request(&self.attributes.requests(types)?, all_words());
            let (answer, trace) = explain_report(mixer, request.clone(), caller).await;
            let asked = Asked { answer, trace: Some(trace), took: start.elapsed() };
            return print_report(&request, &asked, self.json, Failure::of_call);
        }
        let mut request = check_request(&self.attributes.request(types)?, all_words());
        if let Some(quota) = &self.quota {
            self.amount.ask(quota, &mut request);
        }
        let (answer, trace) = explain_check(mixer, request.clone(), caller).await;
        let asked = Asked { answer, trace: Some(trace), took: start.elapsed() };
        print_check(&request, &asked, self.json, Failure::of_call)
    }
}

/// Opens what may be called.
struct Connections {
    connector: Connector,
    call: bool,
}

impl Connect for Connections {
    fn connect<'a>(&'a self, spec: &'a HandlerSpec) -> BoxFuture<'a, Result<Opened, OpenFault>> {
        Box::pin(async move {
            match self.call || stays_here(spec) {
                true if self.call => self.connector.connect(spec).await,
                true => Ok(Box::new(Quiet(Some(self.connector.connect(spec).await?))) as Opened),
                false => Ok(Box::new(Quiet(None)) as Opened),
            }
        })
    }
}

/// Whether any call of a handler stays in the process: an adapter that only reports may listen on a port or write files
/// as soon as it is opened.
fn stays_here(spec: &HandlerSpec) -> bool {
    let Use::InProcess { adapter, .. } = &spec.used else { return false };
    let used = spec.templates();
    let mut templates = adapter.templates.iter().filter(|template| used.contains(template.name));
    templates.any(|template| template.variety != Variety::Report)
}

/// A handler whose calls stay in the process; nothing where none does.
struct Quiet(Option<Opened>);

impl Target for Quiet {
    fn call<'a>(
        &'a self,
        template: &'a DynamicTemplate,
        request: Bytes,
        deadline: Option<tokio::time::Instant>,
    ) -> BoxFuture<'a, Result<Bytes, Status>> {
        match &self.0 {
            Some(opened) => opened.call(template, request, deadline),
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
