use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use mixer_adapter_versioning::bump;
use serde_json::json;

use crate::cli::output_args::OutputArgs;

/// Begin the next version of a package as a copy without deprecated elements: v2alpha after v1, v2 after v2alpha
#[derive(Debug, Args)]
pub(super) struct Bump {
    /// The folder that imports are relative to
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    /// The package
    #[arg(value_name = "PACKAGE")]
    package: String,

    #[command(flatten)]
    output: OutputArgs,
}

impl Bump {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let next = bump(&self.folder, &self.package)?;
        next.write()?;
        let files: Vec<_> = next.files.keys().map(|path| path.display().to_string()).collect();
        let omitted: Vec<_> = next.omitted.iter().map(ToString::to_string).collect();
        self.output.print(&json!({ "files": files, "omitted": omitted }), || {
            let omitted = omitted.iter().map(|element| format!("omitted, deprecated: {element}\n"));
            files.iter().map(|file| format!("{file}\n")).chain(omitted).collect()
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
