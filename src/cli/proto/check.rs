use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;
use clap::Args;
use mixer_adapter_versioning::{ProtoSet, check, check_references, compare};

use super::{Protos, Release, read_baseline, report};
use crate::cli::output_args::OutputArgs;

/// Report what breaks the policy, and every incompatible change
#[derive(Debug, Args)]
pub(super) struct Check {
    #[command(flatten)]
    protos: Protos,

    /// The file of published protos, as `proto baseline` writes it
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,

    /// Protos or descriptors of an earlier release to compare with, in place of a baseline
    ///
    /// Only incompatible changes are reported
    #[arg(long, value_name = "PROTOS", hide_env = true, conflicts_with = "baseline")]
    against: Option<PathBuf>,

    #[command(flatten)]
    release: Release,

    #[command(flatten)]
    output: OutputArgs,
}

impl Check {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let set = self.protos.open()?;
        let violations = match (&self.baseline, &self.against) {
            (Some(file), _) => {
                let baseline = read_baseline(file)?.with_context(|| {
                    format!("{}: no such file; `proto baseline` writes it", file.display())
                })?;
                check(&set, &baseline, self.release.release)
            }
            (None, Some(before)) => compare(&set, &ProtoSet::open(&[before], &self.protos.include)?),
            (None, None) => check_references(&set),
        };
        report(&violations, self.output)
    }
}
