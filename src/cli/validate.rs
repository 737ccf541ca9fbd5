use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::Context as _;
use clap::{Args, ValueEnum, ValueHint};
use glob::MatchOptions;
use serde::Serialize;

use super::{
    AddAdapters, UsageError,
    config_args::FieldArgs,
    counted,
    dry_run::DryRun,
    faults::{LocatedFault, Texts, sarif},
    output_args::DataFormat,
    progress::Progress,
    style,
};
use mixer_adapter_config::{self as config, ConfigSet, Parsed, ValidationError};
use mixer_adapter_engine::build::unused;
use mixer_adapter_streams::{ConfigUrl, FILE_FORMATS, stream};

/// Report every fault of a configuration, with file, line and column
#[derive(Debug, Args)]
pub(super) struct Validate {
    /// Directories of YAML or JSON files, such files, patterns of them, or - for standard input
    ///
    /// Together they are one configuration
    #[arg(value_name = "PATH", required_unless_present = "config", conflicts_with = "config", value_hint = ValueHint::AnyPath)]
    paths: Vec<ConfigUrl>,

    /// The same as PATH
    #[arg(long, value_name = "DIR", value_delimiter = ';', value_hint = ValueHint::AnyPath)]
    config: Vec<ConfigUrl>,

    /// The namespace of resources without one
    #[arg(long, value_name = "NAMESPACE", default_value = "istio-system")]
    default_config_namespace: String,

    /// Types of resources besides Envoy's
    ///
    /// An encoded FileDescriptorSet with all its imports; can be repeated
    #[arg(long, value_name = "FILE", value_delimiter = ',')]
    descriptors: Vec<PathBuf>,

    #[command(flatten)]
    fields: FieldArgs,

    /// Fail on warnings, too
    #[arg(long)]
    warnings_as_errors: bool,

    /// Print at most this number of faults, errors first
    ///
    /// 0 prints all [default: 100 as text, otherwise all]
    #[arg(long, value_name = "N")]
    max: Option<usize>,

    /// The format of the faults
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    output: Format,

    /// The same as --output json
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Each fault with its line of the file
    Text,
    /// One object
    Json,
    /// The same as JSON in YAML
    Yaml,
    /// SARIF 2.1.0, for code scanning
    Sarif,
    /// Annotations of GitHub Actions
    Github,
}

/// The number of faults in a text.
const MAX_IN_TEXT: usize = 100;
/// The name of standard input in faults.
const STDIN: &str = "<stdin>";
/// Maximum length of standard input in bytes, as of files.
const MAX_STDIN: u64 = 64 << 20;

/// The output as JSON.
#[derive(Serialize)]
struct Found<'a> {
    resources: BTreeMap<String, usize>,
    errors: usize,
    warnings: usize,
    faults: Vec<LocatedFault<'a>>,
}

impl Validate {
    pub(super) fn run(self, add: AddAdapters<'_>) -> anyhow::Result<ExitCode> {
        let types = super::source::types(&self.descriptors)?;
        let mut texts = Texts::default();
        let Parsed { resources, mut faults } = self.read(&mut texts)?;
        faults.extend(stream::check(&types, &resources));
        let (set, found) = ConfigSet::of(resources);
        faults.extend(found);
        faults.extend(unused(&set, &self.default_config_namespace));
        let engines = DryRun::new(add, false)?;
        self.print(&set, &engines.builder(&set, faults).faults(&self.fields.policy()?), texts)
    }

    /// Reads all paths as one configuration. A path without any resource is a fault.
    fn read(&self, texts: &mut Texts) -> anyhow::Result<Parsed> {
        let mut all = Parsed::default();
        let mut seen = BTreeSet::new();
        let mut progress = Progress::new("files", None);
        let mut read_files = 0;
        for url in self.paths.iter().chain(&self.config) {
            let ConfigUrl::Files(path) = url else {
                anyhow::bail!(usage!(
                    "{url} is not a file or a directory; `watch {url} --once --write DIR` writes files to validate"
                ));
            };
            let (files, parsed) = match path.to_str() {
                Some("-") => (vec![PathBuf::from(STDIN)], vec![self.read_stdin(texts)?]),
                _ => {
                    let found = expand(path)?;
                    if found.is_empty() {
                        all.faults.push(ValidationError::error("no file matches").in_file(path));
                    }
                    // Patterns may overlap.
                    let files: Vec<_> = found.into_iter().filter(|file| seen.insert(file.clone())).collect();
                    let parsed = files.iter().map(|file| {
                        progress.at(read_files);
                        read_files += 1;
                        config::read(file, &self.default_config_namespace, FILE_FORMATS)
                    });
                    let parsed = parsed.collect();
                    (files, parsed)
                }
            };
            for (file, parsed) in files.iter().zip(parsed) {
                if parsed.resources.is_empty() && parsed.faults.is_empty() {
                    let reason = "there are no resources here, so there is nothing to validate";
                    all.faults.push(ValidationError::error(reason).in_file(file));
                }
                all.resources.extend(parsed.resources);
                all.faults.extend(parsed.faults);
            }
        }
        Ok(all)
    }

    fn read_stdin(&self, texts: &mut Texts) -> anyhow::Result<Parsed> {
        let mut text = String::new();
        let read = std::io::stdin().take(MAX_STDIN + 1).read_to_string(&mut text);
        let length = read.context("cannot read standard input")?;
        anyhow::ensure!(length as u64 <= MAX_STDIN, "standard input is longer than {} MiB", MAX_STDIN >> 20);
        texts.add(STDIN, &text);
        Ok(config::parse(&text, STDIN, &self.default_config_namespace))
    }

    fn print(
        &self,
        set: &ConfigSet,
        faults: &[ValidationError],
        mut texts: Texts,
    ) -> anyhow::Result<ExitCode> {
        let format = if self.json { Format::Json } else { self.output };
        let errors = faults.iter().filter(|fault| fault.is_error()).count();
        let warnings = faults.len() - errors;
        let max = match (self.max, format) {
            (Some(0), _) | (None, Format::Json | Format::Yaml | Format::Sarif | Format::Github) => usize::MAX,
            (Some(max), _) => max,
            (None, Format::Text) => MAX_IN_TEXT,
        };
        let mut shown: Vec<&ValidationError> = faults.iter().collect();
        if shown.len() > max {
            shown.sort_by_key(|fault| !fault.is_error());
            shown.truncate(max);
        }
        shown.sort_by(|one, other| one.origin.cmp(&other.origin));
        let faults = texts.locate(shown);
        let resources: BTreeMap<String, usize> =
            set.counts().into_iter().map(|(collection, count)| (collection.to_string(), count)).collect();
        match format {
            Format::Json => DataFormat::Json.print(&Found { resources, errors, warnings, faults })?,
            Format::Yaml => DataFormat::Yaml.print(&Found { resources, errors, warnings, faults })?,
            Format::Sarif => DataFormat::Json.print(&sarif(&faults))?,
            Format::Github => {
                super::print(&faults.iter().map(LocatedFault::to_annotation).collect::<String>())?
            }
            Format::Text => super::print(&text(&faults, resources.values().sum(), errors, warnings))?,
        }
        let failed = errors > 0 || (self.warnings_as_errors && warnings > 0);
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// Returns the files that a pattern matches, without hidden files and tests; any other path is returned as it is.
fn expand(path: &Path) -> Result<Vec<PathBuf>, UsageError> {
    let pattern = path.to_str().filter(|text| text.contains(['*', '?', '[']) && fs::metadata(path).is_err());
    let Some(pattern) = pattern else { return Ok(vec![path.to_owned()]) };
    let options = MatchOptions { require_literal_leading_dot: true, ..MatchOptions::new() };
    let found =
        glob::glob_with(pattern, options).map_err(|error| usage!("{pattern}: not a pattern: {error}"))?;
    // A path that cannot be listed cannot be read either, which is a fault.
    let found = found.map(|file| file.unwrap_or_else(|error| error.path().to_owned()));
    Ok(found.filter(|file| !config::is_test(file)).collect())
}

fn text(faults: &[LocatedFault<'_>], resources: usize, errors: usize, warnings: usize) -> String {
    let mut text = String::new();
    for fault in faults {
        let _ = if style::on_stdout() { write!(text, "{fault:#}") } else { write!(text, "{fault}") };
    }
    if faults.len() < errors + warnings {
        let more = counted(errors + warnings - faults.len(), "more fault");
        let _ = writeln!(text, "... and {more}; --max 0 shows all");
    }
    let (resources, errors) = (counted(resources, "resource"), counted(errors, "error"));
    text + &format!("{resources}: {errors}, {}\n", counted(warnings, "warning"))
}
