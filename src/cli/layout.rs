//! The layout of a configuration's files.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::Args;
use pretty_yaml::config::{FormatOptions, LanguageOptions, LayoutOptions};
use serde_json::Value as Json;

use super::{counted, faults, input};
use mixer_adapter_config::text_files;

/// Lay out the YAML files of a configuration
#[derive(Debug, Args)]
pub(super) struct Fmt {
    /// Directories with YAML files, such files, or - for standard input
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Write nothing: list the files whose layout differs, and exit with 1 if there is one
    #[arg(long)]
    check: bool,
}

/// The name of standard input in errors.
const STDIN: &str = "<stdin>";
/// Maximum length of a line in characters. Longer ones are broken where YAML allows it.
const WIDTH: usize = 120;
/// Maximum depth of nested values.
const MAX_DEPTH: usize = 64;

impl Fmt {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        if self.paths == [Path::new("-")] {
            return self.format_stdin();
        }
        let files = self.files()?;
        anyhow::ensure!(!files.is_empty(), "there are no YAML files here");
        // Nothing is written unless every file can be formatted.
        let mut changed = Vec::new();
        for file in &files {
            let name = file.display().to_string();
            let text = input::read_text(file).with_context(|| format!("cannot read {name}"))?;
            let formatted = format(&name, &text)?;
            if formatted != text {
                changed.push((file, formatted));
            }
        }
        let verb = if self.check { "differs" } else { "formatted" };
        for (file, formatted) in &changed {
            if !self.check {
                replace(file, formatted).with_context(|| format!("cannot write {}", file.display()))?;
            }
            super::print(&format!("{verb}: {}\n", file.display()))?;
        }
        let unchanged = counted(files.len() - changed.len(), "file");
        super::print(&format!(
            "{}, {unchanged} unchanged\n",
            counted(changed.len(), &format!("file {verb}"))
        ))?;
        Ok(if self.check && !changed.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn format_stdin(&self) -> anyhow::Result<ExitCode> {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        let formatted = format(STDIN, &text)?;
        if self.check {
            return Ok(if formatted == text { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        super::print(&formatted)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the YAML files of all paths, tests included, each once and without links.
    fn files(&self) -> anyhow::Result<BTreeSet<PathBuf>> {
        let mut files = BTreeSet::new();
        for path in &self.paths {
            let context = || format!("cannot read {}", path.display());
            let found = if path.metadata().with_context(context)?.is_dir() {
                text_files(path)
            } else {
                vec![path.clone()]
            };
            for file in found.iter().filter(|file| !is_json(file)) {
                files.insert(file.canonicalize().with_context(context)?);
            }
        }
        Ok(files)
    }
}

/// Replaces a file as a whole, with the same permissions.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let directory = file.parent().ok_or(io::ErrorKind::InvalidInput)?;
    // A hidden name, which no server reads; it is removed if an error occurs.
    let mut unfinished = tempfile::Builder::new().prefix(".fmt-").tempfile_in(directory)?;
    unfinished.as_file().set_permissions(fs::metadata(file)?.permissions())?;
    unfinished.write_all(text.as_bytes())?;
    unfinished.as_file().sync_all()?;
    unfinished.persist(file)?;
    Ok(())
}

fn is_json(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "json")
}

/// Returns the text in the usual layout, with the same values and comments.
fn format(name: &str, text: &str) -> anyhow::Result<String> {
    let values = documents(name, text)?;
    let formatted = pretty_yaml::format_text(text, &options())
        .map_err(|error| usage!("{name} cannot be formatted: {error}"))?;
    let same = documents(name, &formatted).is_ok_and(|formatted| formatted == values);
    anyhow::ensure!(same, "{name} is not formatted, because its values would change");
    Ok(formatted)
}

fn options() -> FormatOptions {
    FormatOptions {
        layout: LayoutOptions { print_width: WIDTH, ..LayoutOptions::default() },
        language: LanguageOptions {
            trailing_comma: false,
            // As kubectl and the documentation write them.
            brace_spacing: false,
            indent_block_sequence_in_map: false,
            ..LanguageOptions::default()
        },
    }
}

/// Reads the values of all documents.
fn documents(name: &str, text: &str) -> anyhow::Result<Vec<Json>> {
    let options = serde_saphyr::options! { budget: serde_saphyr::budget! { max_depth: MAX_DEPTH } };
    let read = serde_saphyr::from_multiple_with_options(text, options);
    Ok(read.map_err(|error| usage!("{}", faults::of_yaml(name, text, &error)))?)
}
