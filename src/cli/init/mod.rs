//! Writes a first configuration.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::PathBuf,
};

use anyhow::Context as _;
use clap::Args;
use mixer_adapter_host::handler::Adapters;

const FILES: [(&str, &str); 2] =
    [("paths.yaml", include_str!("paths.yaml")), ("paths.test.yaml", include_str!("paths.test.yaml"))];

/// The adapter that the configuration uses.
const ADAPTER: &str = "listchecker";

/// Write a first configuration with a test to a directory
#[derive(Debug, Args)]
pub(super) struct Init {
    /// The directory, which is created if it is missing; files in it are not replaced
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Init {
    pub(super) fn run(&self, adapters: &Adapters) -> anyhow::Result<()> {
        let (directory, program) = (self.directory.display(), super::program::name());
        anyhow::ensure!(
            adapters.find(ADAPTER).is_some(),
            "this program has no adapter {ADAPTER}, which the first configuration uses; `{program} adapters` lists those it has"
        );
        fs::create_dir_all(&self.directory).with_context(|| format!("cannot create {directory}"))?;
        let paths = FILES.map(|(name, _)| self.directory.join(name));
        if let Some(path) = paths.iter().find(|path| path.exists()) {
            anyhow::bail!("{} exists already", path.display());
        }
        for ((_, text), path) in FILES.iter().zip(&paths) {
            let written = OpenOptions::new().write(true).create_new(true).open(path);
            written
                .and_then(|mut file| file.write_all(text.as_bytes()))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        let [config, test] = paths.map(|path| path.display().to_string());
        Ok(super::print(&format!(
            "{config} denies /admin\n{test} tests it\nTry `{program} test {directory}` and `{program} serve {directory}`\n"
        ))?)
    }
}
