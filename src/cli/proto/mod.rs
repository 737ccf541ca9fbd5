//! The command `proto`: versions of protos.

mod baseline;
mod bump;
mod check;
mod translate;

use std::{
    io,
    path::{Path, PathBuf},
    process::ExitCode,
};

use super::{input::read_text, output_args::OutputArgs};
use anyhow::Context as _;
use clap::{Args, Subcommand};
use mixer_adapter_versioning::{Baseline, ProtoSet, SemanticVersion, Violation};

/// Hold protos to a versioning policy: compatibility, deprecation, next versions
#[derive(Debug, Args)]
pub(super) struct Proto {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::Check),
    Baseline(baseline::Record),
    Bump(bump::Bump),
    Translate(translate::Translate),
}

impl Proto {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Check(check) => check.run(),
            Command::Baseline(record) => record.run(),
            Command::Bump(bump) => bump.run(),
            Command::Translate(translate) => translate.run(),
        }
    }
}

/// The protos of a command.
#[derive(Debug, Args)]
struct Protos {
    /// Folders of .proto files, .proto files, or files with a FileDescriptorSet
    #[arg(value_name = "PROTOS", required = true)]
    protos: Vec<PathBuf>,

    /// A folder in which imports are looked up, too
    #[arg(long, value_name = "DIR")]
    include: Vec<PathBuf>,
}

impl Protos {
    fn open(&self) -> anyhow::Result<ProtoSet> {
        Ok(ProtoSet::open(&self.protos, &self.include)?)
    }
}

/// The clock of deprecations.
#[derive(Debug, Args)]
struct Release {
    /// The version of the program that is released next, by which deprecations proceed [default: the version of each file]
    #[arg(long, value_name = "VERSION")]
    release: Option<SemanticVersion>,
}

/// Reads a baseline; `None` if the file does not exist.
fn read_baseline(path: &Path) -> anyhow::Result<Option<Baseline>> {
    let text = match read_text(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.with_context(|| format!("cannot read {}", path.display()))?,
    };
    Ok(Some(text.parse().with_context(|| path.display().to_string())?))
}

/// Prints violations, one a line, and their number; returns whether there are none.
fn report(violations: &[Violation], output: OutputArgs) -> anyhow::Result<ExitCode> {
    output.print(&serde_json::json!({ "violations": violations }), || {
        let text: String = violations.iter().map(|violation| format!("{violation}\n")).collect();
        text + &match violations.len() {
            0 => "no violations\n".to_owned(),
            count => super::counted(count, "violation") + "\n",
        }
    })?;
    Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
