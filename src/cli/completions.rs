use std::process::ExitCode;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  source <(mixer-adapter completions bash)
  mixer-adapter completions zsh > ~/.zfunc/_mixer-adapter
  mixer-adapter completions fish > ~/.config/fish/completions/mixer-adapter.fish";

/// Print completions of commands and flags for a shell
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut command = super::Arguments::command();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, program(), &mut script);
        super::print(&String::from_utf8(script)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What the program is called by: adapters of other people have programs of their own names.
fn program() -> String {
    let path = std::env::args_os().next().map(std::path::PathBuf::from);
    let name =
        path.as_deref().and_then(|path| path.file_stem()).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| env!("CARGO_PKG_NAME").to_owned())
}
