use std::{collections::BTreeMap, fmt::Write as _, process::ExitCode, sync::Arc};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;

use super::{UsageError, config_args, value_parsers};
use mixer_adapter_config::{ConfigUrl, Fault, Severity};
use mixer_adapter_engine::build::SnapshotBuilder;
use mixer_adapter_host::{
    Host,
    handler::{AdaptersBuilder, Closing, TableLimits},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  mixer-adapter validate config/
  mixer-adapter validate --warnings-as-errors config/     in CI
  mixer-adapter validate --json rules.yaml | jq '.faults[] | select(.severity == \"error\")'

Errors are faults for which this program's server or a real Mixer rejects or skips a resource; warnings are probable
mistakes, and differences in a real Mixer. Adapters of this program validate their configuration; no adapter is opened,
and no connection is made.

Exit codes: 0 no errors, 1 errors, 2 usage error.";

/// Report every fault of a configuration, with file and line
#[derive(Debug, Args)]
pub(super) struct Validate {
    /// A directory of YAML or JSON files, or one such file
    #[arg(value_name = "DIR", required_unless_present = "config", conflicts_with = "config")]
    directory: Option<ConfigUrl>,

    /// The same as DIR
    #[arg(long, value_name = "DIR|URL", env = "MIXER_ADAPTER_CONFIG")]
    config: Option<ConfigUrl>,

    /// The namespace of resources without one
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = "istio-system",
        env = "MIXER_ADAPTER_DEFAULT_CONFIG_NAMESPACE"
    )]
    default_config_namespace: String,

    /// Fail on warnings, too
    #[arg(long, env = "MIXER_ADAPTER_WARNINGS_AS_ERRORS", value_parser = value_parsers::switch())]
    warnings_as_errors: bool,

    /// Print JSON
    #[arg(long, env = "MIXER_ADAPTER_JSON", value_parser = value_parsers::switch())]
    json: bool,
}

/// The output of --json.
#[derive(Serialize)]
struct Found<'a> {
    resources: BTreeMap<String, usize>,
    errors: usize,
    warnings: usize,
    faults: Vec<Described<'a>>,
}

#[derive(Serialize)]
struct Described<'a> {
    severity: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    field: &'a str,
    reason: &'a str,
}

impl Validate {
    pub(super) fn run(
        self,
        add: impl FnOnce(AdaptersBuilder) -> AdaptersBuilder,
    ) -> anyhow::Result<ExitCode> {
        let url = self.directory.as_ref().or(self.config.as_ref());
        let url = url.ok_or_else(|| UsageError("give a directory".to_owned()))?;
        let (set, faults) = config_args::read(url, &self.default_config_namespace)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("the runtime cannot start")?;
        let adapters = super::adapters(&runtime, add)?;
        let closing = Closing::on(runtime.handle().clone());
        let host = Arc::new(Host::new(adapters, TableLimits::default(), closing));
        let builder = runtime.block_on(async { SnapshotBuilder::new(&set, faults, &host) });

        let mut faults: Vec<&Fault> = builder.faults().iter().collect();
        faults.sort_by(|one, other| one.origin.cmp(&other.origin));
        let errors = faults.iter().filter(|fault| fault.is_error()).count();
        let resources = set.counts().into_iter().map(|(collection, count)| (collection.to_string(), count));
        let found = Found {
            resources: resources.collect(),
            errors,
            warnings: faults.len() - errors,
            faults: faults.iter().copied().map(describe).collect(),
        };
        match self.json {
            true => super::print_json(&found)?,
            false => super::print(&text(&faults, &found))?,
        }
        let failed = found.errors > 0 || (self.warnings_as_errors && found.warnings > 0);
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

fn text(faults: &[&Fault], found: &Found<'_>) -> String {
    let mut text = String::new();
    for fault in faults {
        let _ = writeln!(text, "{}", fault.to_string().trim_end());
    }
    let resources: usize = found.resources.values().sum();
    let count = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    };
    let _ = writeln!(
        text,
        "{}: {}, {}",
        count(resources, "resource"),
        count(found.errors, "error"),
        count(found.warnings, "warning"),
    );
    text
}

fn describe(fault: &Fault) -> Described<'_> {
    Described {
        severity: match fault.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        },
        file: fault.origin.as_ref().map(|origin| &*origin.source),
        line: fault.origin.as_ref().map(|origin| origin.line).filter(|line| *line > 0),
        resource: fault.resource.as_ref().map(ToString::to_string),
        field: &fault.field,
        reason: fault.reason.trim_end(),
    }
}
