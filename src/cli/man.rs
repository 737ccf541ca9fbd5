//! Manual pages, of the same data as `--help`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use clap::{Args, Command};
use clap_mangen::roff::{Roff, roman};

use super::{
    help::{EXAMPLES as EXAMPLES_HEADING, EXIT_CODES},
    program,
};

/// Print the manual page of a command, or write the pages of all commands
#[derive(Debug, Args)]
pub(super) struct Man {
    /// The command, such as `serve` [default: the program]
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,

    /// Write the pages of all commands into this directory
    #[arg(long, value_name = "DIR", hide_env = true, conflicts_with = "command")]
    directory: Option<PathBuf>,
}

impl Man {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let mut program = super::command(&[]).disable_help_subcommand(true);
        program.build();
        if let Some(directory) = &self.directory {
            return write(&program, directory)
                .with_context(|| format!("cannot write to {}", directory.display()));
        }
        let command = self.command.iter().try_fold(&program, |command, name| command.find_subcommand(name));
        let command = command.ok_or_else(|| usage!("there is no command {}", self.command.join(" ")))?;
        Ok(super::print(&page(command)?)?)
    }
}

fn write(program: &Command, directory: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(directory)?;
    for command in all(program) {
        fs::write(directory.join(format!("{}.1", title(command))), page(command)?)?;
    }
    Ok(())
}

fn all(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().filter(|command| !command.is_hide_set()).flat_map(all);
    [command].into_iter().chain(below).collect()
}

fn title(command: &Command) -> &str {
    command.get_display_name().unwrap_or(command.get_name())
}

fn page(command: &Command) -> anyhow::Result<String> {
    let after = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
    let man = clap_mangen::Man::new(command.clone().after_long_help(""))
        .source(format!("{} {}", program::name(), program::current().version))
        .manual("Mixer adapter");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    sections(&after).to_writer(&mut page)?;
    Ok(String::from_utf8(page)?)
}

/// The sections of the text after the flags: lines that are indented there are not filled.
fn sections(text: &str) -> Roff {
    let mut page = Roff::default();
    let mut notes = false;
    for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.is_empty()) {
        let heading = [(EXAMPLES_HEADING, "EXAMPLES"), (EXIT_CODES, "EXIT STATUS")];
        let section =
            heading.iter().find_map(|(heading, title)| Some((*title, paragraph.strip_prefix(heading)?)));
        let (title, paragraph) = section.unwrap_or(("NOTES", paragraph));
        match (title, notes) {
            ("NOTES", true) => page.control("PP", []),
            _ => page.control("SH", [title]),
        };
        notes = title == "NOTES";
        let lines: Vec<&str> = paragraph.trim_start_matches('\n').lines().collect();
        for lines in lines.chunk_by(|one, next| one.starts_with("  ") == next.starts_with("  ")) {
            let filled = !lines[0].starts_with("  ");
            if !filled {
                page.control("nf", []);
            }
            for line in lines {
                page.text([roman(if filled { line.trim_start() } else { line })]);
            }
            if !filled {
                page.control("fi", []);
            }
        }
    }
    page
}
