use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::Args;
use mixer_adapter_versioning::{Exception, record};

use super::{Protos, Release, read_baseline, report};
use crate::cli::output_args::OutputArgs;

/// Record the published protos: facts, versions and hashes
#[derive(Debug, Args)]
pub(super) struct Record {
    #[command(flatten)]
    protos: Protos,

    /// The file to write
    ///
    /// Its violations are reported first, and nothing is written while there are any
    #[arg(long, value_name = "FILE")]
    baseline: PathBuf,

    /// Decide that an element may break a rule, such as 'removed shop.v1.Order.name'
    ///
    /// The baseline has the decision from then on
    #[arg(long, value_name = "RULE ELEMENT")]
    allow: Vec<Exception>,

    /// Hold an alpha package to the baseline like a stable one, from then on
    #[arg(long, value_name = "PACKAGE")]
    hold: Vec<String>,

    /// Write the table of deprecated elements, with the releases in which their use warns, fails and ends
    #[arg(long, value_name = "FILE")]
    deprecated: Option<PathBuf>,

    #[command(flatten)]
    release: Release,

    #[command(flatten)]
    output: OutputArgs,
}

impl Record {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let set = self.protos.open()?;
        let mut baseline = read_baseline(&self.baseline)?.unwrap_or_default();
        for exception in self.allow {
            baseline.add_exception(exception);
        }
        for package in self.hold {
            baseline.hold(package);
        }
        if let Err(violations) = record(&set, &mut baseline, self.release.release) {
            return report(&violations, self.output);
        }
        write(&self.baseline, baseline.to_string())?;
        if let Some(path) = &self.deprecated {
            write(path, baseline.deprecations())?;
        }
        report(&[], self.output)
    }
}

fn write(path: &Path, text: String) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
