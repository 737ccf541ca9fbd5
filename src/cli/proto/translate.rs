use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use mixer_adapter_core::framework::json::read_json;
use mixer_adapter_versioning::{Row, Translator};

use super::Protos;
use crate::cli::{
    input,
    output_args::{DataFormat, OutputArgs},
};

/// Translate a message between two versions of a package, or show how they correspond
#[derive(Debug, Args)]
pub(super) struct Translate {
    #[command(flatten)]
    protos: Protos,

    /// The older package
    #[arg(long, value_name = "PACKAGE", hide_env = true)]
    from: String,

    /// The newer package
    #[arg(long, value_name = "PACKAGE", hide_env = true)]
    to: String,

    /// The message to translate, of either package
    ///
    /// Without it, the table of what differs
    #[arg(long, value_name = "NAME", hide_env = true, requires = "json_text")]
    message: Option<String>,

    /// The message as JSON: inline, @FILE, or @- for stdin
    #[arg(long = "data", id = "json_text", value_name = "JSON", hide_env = true, requires = "message")]
    data: Option<String>,

    #[command(flatten)]
    output: OutputArgs,
}

impl Translate {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let set = self.protos.open()?;
        let translator = Translator::between(&set, &self.from, &self.to)?;
        let (Some(name), Some(data)) = (&self.message, &self.data) else {
            self.output.print(&translator.rows(), || table(translator.rows()))?;
            return Ok(ExitCode::SUCCESS);
        };
        let of = set.pool().get_message_by_name(name);
        let of = of.with_context(|| format!("{name} is not a message of the protos"))?;
        let message = read_json(&of, input::json("--data", data)?)?;
        let translated = translator.translate(&message)?;
        self.output.data().unwrap_or(DataFormat::Json).print(&translated.message)?;
        for loss in &translated.losses {
            crate::cli::print_error(&format!("lost: {}: {}", loss.path, loss.reason));
        }
        Ok(if translated.losses.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.from.len()).max().unwrap_or_default();
    let lines =
        rows.iter().map(|row| format!("{:width$}  {}  ({})\n", cell(&row.from), cell(&row.to), row.note));
    lines.collect()
}

fn cell(name: &str) -> &str {
    if name.is_empty() { "-" } else { name }
}
