//! `--config` and what goes with it.

use clap::{Args, builder::TypedValueParser};

use super::{Usage, sources::files, values};
use mixer_adapter_config::{self as config, ConfigSet, ConfigUrl, Fault, Parsed, ScopedUrl};
use mixer_adapter_engine::{
    build::{BuildOptions, FieldPolicy, OnField},
    dispatch::{FailurePolicy, OnFailure},
};

/// Which configuration, and what is done where it or a call is at fault.
#[derive(Debug, Args)]
pub(super) struct Configuration {
    /// The configuration: a directory of YAML or JSON files, one such file, mcp://HOST:PORT, xds://HOST:PORT (whole sets) or
    /// xds+delta://HOST:PORT (changes). Can be given several times,
    /// with collections for each: mcp://HOST:PORT?collections=rules,handlers [default: a sample that comes with it]
    #[arg(long, value_name = "DIR|URL", env = "MIXER_ADAPTER_CONFIG", value_delimiter = ';')]
    pub(super) config: Vec<ScopedUrl>,

    /// The namespace whose rules apply to every request, and of resources that name none
    #[arg(
        long,
        value_name = "NAMESPACE",
        default_value = "istio-system",
        env = "MIXER_ADAPTER_DEFAULT_CONFIG_NAMESPACE"
    )]
    pub(super) default_config_namespace: String,

    /// Leave out what is faulty in the configuration, as Mixer does, in place of refusing all of it
    #[arg(long, env = "MIXER_ADAPTER_LENIENT", value_parser = values::switch(), action = clap::ArgAction::SetTrue)]
    lenient: bool,

    /// A rule's condition cannot be evaluated: `mixer` and `open` skip the rule, `closed` denies the check
    #[arg(long, value_name = "POLICY", default_value = "mixer", env = "MIXER_ADAPTER_ON_MATCH_ERROR", value_parser = on_failure())]
    on_match_error: OnFailure,

    /// An instance cannot be built, or an adapter fails: `mixer` fails the check with a gRPC error, `open` goes on
    /// without it, `closed` denies the check
    #[arg(long, value_name = "POLICY", default_value = "mixer", env = "MIXER_ADAPTER_ON_ADAPTER_ERROR", value_parser = on_failure())]
    on_adapter_error: OnFailure,

    /// An adapter does not answer in time: as --on-adapter-error
    #[arg(long, value_name = "POLICY", default_value = "mixer", env = "MIXER_ADAPTER_ON_TIMEOUT", value_parser = on_failure())]
    on_timeout: OnFailure,

    /// The configuration is in use with faults, by --lenient: `closed` denies every check until they are corrected
    #[arg(long, value_name = "POLICY", default_value = "mixer", env = "MIXER_ADAPTER_ON_CONFIG_ERROR", value_parser = on_failure())]
    on_config_error: OnFailure,

    /// What is received has a field that is not known here, as its sender has a newer API: `warn`, `ignore` or `refuse`
    #[arg(long, value_name = "POLICY", default_value = "warn", env = "MIXER_ADAPTER_UNKNOWN_FIELDS", value_parser = on_field())]
    unknown_fields: OnField,

    /// The configuration has a field that is deprecated: `warn`, `ignore` or `refuse`
    #[arg(long, value_name = "POLICY", default_value = "warn", env = "MIXER_ADAPTER_DEPRECATED_FIELDS", value_parser = on_field())]
    deprecated_fields: OnField,
}

impl Configuration {
    /// How a snapshot is built of it.
    pub(super) fn options(&self) -> BuildOptions {
        BuildOptions {
            default_namespace: self.default_config_namespace.clone(),
            lenient: self.lenient,
            policy: FailurePolicy {
                match_error: self.on_match_error,
                adapter_error: self.on_adapter_error,
                timeout: self.on_timeout,
                config_error: self.on_config_error,
            },
            fields: FieldPolicy { unknown: self.unknown_fields, deprecated: self.deprecated_fields },
            ..BuildOptions::default()
        }
    }

    /// The resources now, and what is wrong with them so far.
    pub(super) fn read(&self, sample: Option<&'static str>) -> Result<(ConfigSet, Vec<Fault>), Usage> {
        match (&self.config[..], sample) {
            ([], Some(sample)) => Ok(set(config::parse(sample, SAMPLE, &self.default_config_namespace))),
            ([], None) => Err(Usage("--config: this program has no sample; give a directory".to_owned())),
            (parts, _) => {
                let mut all = Parsed::default();
                for (path, filter) in files(parts)? {
                    let parsed = config::read(path, &self.default_config_namespace);
                    let own = |resource: &config::Resource| filter.includes(&resource.collection);
                    all.resources.extend(parsed.resources.into_iter().filter(own));
                    all.faults.extend(parsed.faults);
                }
                Ok(set(all))
            }
        }
    }
}

/// What the configuration that comes with a program is called.
pub(super) const SAMPLE: &str = "the sample";

/// The resources of a directory or a file, and what is wrong with them so far.
pub(super) fn read(url: &ConfigUrl, default_namespace: &str) -> Result<(ConfigSet, Vec<Fault>), Usage> {
    match url {
        ConfigUrl::Files(path) => Ok(set(config::read(path, default_namespace))),
        url => Err(Usage(format!("{url} is no directory and no file; only `serve` follows servers"))),
    }
}

fn set(parsed: config::Parsed) -> (ConfigSet, Vec<Fault>) {
    let mut faults = parsed.faults;
    let (set, found) = ConfigSet::of(parsed.resources);
    faults.extend(found);
    (set, faults)
}

fn on_field() -> impl TypedValueParser<Value = OnField> {
    clap::builder::PossibleValuesParser::new(["warn", "ignore", "refuse"]).map(|policy| {
        match policy.as_str() {
            "ignore" => OnField::Ignore,
            "refuse" => OnField::Refuse,
            _ => OnField::Warn,
        }
    })
}

fn on_failure() -> impl TypedValueParser<Value = OnFailure> {
    clap::builder::PossibleValuesParser::new(["mixer", "open", "closed"]).map(|policy| {
        match policy.as_str() {
            "open" => OnFailure::Open,
            "closed" => OnFailure::Closed,
            _ => OnFailure::Mixer,
        }
    })
}
