//! Tests the contract of adapters on any server.

mod report;
mod server;

use std::{process::ExitCode, time::Duration};

use clap::{Args, ValueEnum};
use parking_lot::Mutex;

use self::{report::Report, server::Server};
use super::{
    call::request::{described_template, given_config_message, known_template},
    input,
    progress::Progress,
    rpc_client::RpcClient,
    server_args::{ClientSecurityArgs, ServerArgs},
    value_parsers,
};
use crate::testing::compliance::{common::Options, rules::RULES, run::Run};
use mixer_adapter_engine::build::known_templates;
use mixer_adapter_host::handler::Adapters;

/// Test any adapter server, in any language, against the contract of adapters
#[derive(Debug, Args)]
pub(super) struct Comply {
    /// The server of the adapter; HOST:PORT, or unix:/PATH
    #[arg(value_name = "ADDRESS", value_parser = value_parsers::server)]
    address: String,

    /// A template to test; can be repeated
    ///
    /// [default: the known templates that the server serves]
    #[arg(long = "template", value_name = "NAME")]
    templates: Vec<String>,

    /// The descriptor set of another template to test; can be repeated
    ///
    /// A file, or base64 as in its resource
    #[arg(long = "descriptor", value_name = "FILE|BASE64", hide_env = true)]
    descriptors: Vec<String>,

    /// The adapter of this program that --config configures
    #[arg(long, value_name = "NAME")]
    adapter: Option<String>,

    /// A configuration that the adapter accepts [default: {}]
    ///
    /// JSON, @FILE or @- for stdin. Sent as a google.protobuf.Struct if its message is not known
    #[arg(long, value_name = "JSON", hide_env_values = true)]
    config: Option<String>,

    /// The descriptor set of the configuration
    ///
    /// A file, or base64 as in the adapter resource
    #[arg(long, value_name = "FILE|BASE64")]
    config_descriptor: Option<String>,

    /// A configuration that the adapter rejects because of a field; can be repeated
    #[arg(long, value_name = "FIELD=JSON", hide_env = true, value_parser = value_parsers::pair)]
    refuses: Vec<(String, String)>,

    /// A further instance to send, which the adapter must answer; can be repeated
    #[arg(long = "example", value_name = "TEMPLATE=JSON", hide_env = true, value_parser = value_parsers::pair)]
    examples: Vec<(String, String)>,

    /// The full name of all instances
    #[arg(long, value_name = "NAME", default_value = "example.instance.istio-system")]
    instance_name: String,

    /// A rule that the adapter breaks on purpose; can be repeated
    #[arg(long = "except", value_name = "RULE", hide_env = true, value_parser = rule_names())]
    excepted: Vec<String>,

    /// Deadline of each call
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = value_parsers::timeout)]
    timeout: Duration,

    /// Time for all rules; a slow server is tested with fewer instances
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = value_parsers::timeout)]
    budget: Duration,

    /// Format of the report
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,

    /// The same as --output json
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    security: ClientSecurityArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// For programs
    Json,
    /// XML of JUnit, for CI
    Junit,
}

fn rule_names() -> clap::builder::PossibleValuesParser {
    RULES.iter().map(|rule| rule.name).collect::<Vec<_>>().into()
}

impl Comply {
    pub(super) fn run(self, adapters: &Adapters) -> anyhow::Result<ExitCode> {
        let descriptors = self.descriptors.iter().map(|descriptor| described_template(descriptor));
        let named = self.templates.iter().map(|name| known_template(name, adapters));
        let mut templates = descriptors.chain(named).collect::<Result<Vec<_>, _>>()?;
        let is_chosen = !templates.is_empty();
        if !is_chosen {
            let known = known_templates(adapters).into_keys().map(|name| known_template(name, adapters));
            templates = known.collect::<Result<_, _>>()?;
        }
        let config = self.config.as_deref().map(|config| input::json("--config", config)).transpose()?;
        let message =
            given_config_message(self.config_descriptor.as_deref(), self.adapter.as_deref(), adapters)?;
        let has_config = config.is_some() || message.is_some();
        let config = config.map_or_else(|| "{}".to_owned(), |config| config.to_string());
        let options = Options {
            config: has_config.then_some(config),
            refused: self.refuses,
            instance: self.instance_name,
            examples: self.examples,
            excepted: self.excepted,
            patience: self.timeout,
            budget: self.budget,
        };
        let server = ServerArgs { address: self.address, security: self.security };
        let tested = super::block_on(async {
            let client = RpcClient::connect(&server, Some(self.timeout)).await?;
            let subject = Server { client, templates, is_chosen, config: message, options: &options };
            let progress = Mutex::new((Progress::new("rules", Some(server::RULES)), 0));
            let progress = |_: &_| {
                let (progress, done) = &mut *progress.lock();
                *done += 1;
                progress.at(*done);
            };
            anyhow::Ok(server::test(subject, Run::new(&options, &progress)).await)
        })??;
        let report = Report { address: &server.address, tested: &tested };
        super::print(&match (self.json, self.output) {
            (true, _) | (_, Format::Json) => report.json()?,
            (_, Format::Text) => report.text(),
            (_, Format::Junit) => report.junit()?,
        })?;
        Ok(if report.is_kept() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}
