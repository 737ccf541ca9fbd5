use std::process::ExitCode;

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

pub(super) const EXAMPLES: &str = "\
Examples:
  source <(mixer-adapter completions bash)
  mixer-adapter completions zsh > ~/.zfunc/_mixer-adapter
  mixer-adapter completions fish > ~/.config/fish/completions/mixer-adapter.fish";

/// Print shell completions of commands and flags
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut command = super::Arguments::command();
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, super::program(), &mut script);
        super::print(&String::from_utf8(script)?)?;
        Ok(ExitCode::SUCCESS)
    }
}
