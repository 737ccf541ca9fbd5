//! `--config` and the options for building a configuration.

use std::{collections::BTreeSet, time::Duration};

use clap::{Args, ValueHint, builder::TypedValueParser};

use super::{UsageError, input, value_parsers::one_of};
use mixer_adapter_config::{self as config, CollectionFilter, ConfigSet, Parsed, ValidationError};
use mixer_adapter_engine::{
    build::{BuildOptions, FieldPolicy, OnDeprecated, OnField},
    dispatch::{FailurePolicy, OnFailure, OnUnknownQuota},
};
use mixer_adapter_streams::{
    ConfigUrl, FILE_FORMATS, Scoped, ScopedUrl, SourceSettings, Wanted, collection_filters,
};

/// The configuration, and the policies for its faults and for failed calls.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Configuration")]
pub(super) struct ConfigArgs {
    /// The configuration: files, or the URL of a server [default: the configuration in this program]
    ///
    /// A directory of YAML or JSON files, one such file, mcp://HOST:PORT, xds://HOST:PORT (state of the world) or
    /// xds+delta://HOST:PORT (incremental). Can be repeated, with collections for each:
    /// mcp://HOST:PORT?collections=rules,handlers
    #[arg(long, value_name = "DIR|URL", value_delimiter = ';', value_hint = ValueHint::AnyPath)]
    pub(super) config: Vec<ScopedUrl>,

    /// The namespace whose rules apply to all requests, and of resources without a namespace
    #[arg(long, hide_short_help = true, value_name = "NAMESPACE", default_value = "istio-system")]
    pub(super) default_config_namespace: String,

    /// Skip faulty resources, as Mixer does, instead of rejecting the configuration
    #[arg(long)]
    pub(super) lenient: bool,

    /// If a rule's condition cannot be evaluated
    ///
    /// `mixer` and `open` skip the rule, `closed` denies the check
    #[arg(long, value_name = "POLICY", default_value = "mixer", value_parser = on_failure())]
    on_match_error: OnFailure,

    /// If an instance cannot be built, or an adapter fails
    ///
    /// `mixer` fails the check with a gRPC error, `open` continues without it, `closed` denies the check
    #[arg(long, value_name = "POLICY", default_value = "mixer", value_parser = on_failure())]
    on_adapter_error: OnFailure,

    /// If an adapter does not answer in time
    ///
    /// As --on-adapter-error
    #[arg(long, value_name = "POLICY", default_value = "mixer", value_parser = on_failure())]
    on_timeout: OnFailure,

    /// If --lenient uses a configuration with faults
    ///
    /// `closed` denies every check and rate limit until they are corrected
    #[arg(long, value_name = "POLICY", default_value = "mixer", value_parser = on_failure())]
    on_config_error: OnFailure,

    /// If a request asks for a quota that no rule has
    ///
    /// `grant` all of it, as Mixer does, or `deny` it
    #[arg(long, hide_short_help = true, value_name = "POLICY", default_value = "grant", value_parser = on_unknown_quota())]
    on_unknown_quota: OnUnknownQuota,

    #[command(flatten)]
    fields: FieldArgs,
}

/// The policies for fields of other versions of the API.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Configuration")]
pub(super) struct FieldArgs {
    /// If a received resource has an unknown field, because its sender has a newer API
    ///
    /// `warn`, `ignore` or `refuse`
    #[arg(long, hide_short_help = true, value_name = "POLICY", default_value = "warn", value_parser = on_field())]
    unknown_fields: OnField,

    /// If the configuration has a deprecated field
    ///
    /// `warn`, `ignore`, `refuse`, or `schedule`: warn in the release of the mark, refuse in the next unless it is
    /// allowed, and refuse in later ones
    #[arg(long, hide_short_help = true, value_name = "POLICY", default_value = "schedule", value_parser = on_deprecated())]
    deprecated_fields: OnDeprecated,

    /// A deprecated field that the configuration may have although --deprecated-fields refuses it
    ///
    /// By its full name such as shop.v1.Params.old, or @FILE with one name a line. Can be repeated
    #[arg(long, hide_short_help = true, value_name = "FIELD", value_delimiter = ',')]
    allow_deprecated: Vec<String>,
}

impl FieldArgs {
    /// # Errors
    /// A file of --allow-deprecated cannot be read.
    pub(super) fn policy(&self) -> Result<FieldPolicy, UsageError> {
        Ok(FieldPolicy::default()
            .unknown(self.unknown_fields)
            .deprecated(self.deprecated_fields)
            .allowed(self.allowed()?))
    }

    fn allowed(&self) -> Result<BTreeSet<String>, UsageError> {
        let mut allowed = BTreeSet::new();
        for argument in &self.allow_deprecated {
            let (names, _) = input::text("--allow-deprecated", argument)?;
            allowed.extend(names.lines().map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned));
        }
        Ok(allowed)
    }
}

impl ConfigArgs {
    /// The options to build snapshots with.
    ///
    /// # Errors
    /// A file of --allow-deprecated cannot be read.
    pub(super) fn options(&self) -> Result<BuildOptions, UsageError> {
        let mut options = BuildOptions::default();
        options.default_namespace.clone_from(&self.default_config_namespace);
        options.lenient = self.lenient;
        options.policy = self.policy();
        options.fields = self.fields.policy()?;
        Ok(options)
    }

    /// The policy for failed calls and faults.
    pub(super) fn policy(&self) -> FailurePolicy {
        FailurePolicy::default()
            .match_error(self.on_match_error)
            .adapter_error(self.on_adapter_error)
            .timeout(self.on_timeout)
            .config_error(self.on_config_error)
            .unknown_quota(self.on_unknown_quota)
    }

    /// Reads the first state of a server.
    fn read_server(&self, url: &ConfigUrl, filter: &CollectionFilter) -> anyhow::Result<Parsed> {
        if url.is_tls() {
            anyhow::bail!(usage!(
                "{url}: this command has no certificates; `watch {url} --once --write DIR` writes files that it reads"
            ));
        }
        let collections = filter.collections().iter().map(Wanted::required).collect();
        let settings = SourceSettings::new(&self.default_config_namespace).collections(collections);
        let Some(server) = url.server(&settings).map_err(UsageError::of)? else {
            return Ok(Parsed::default());
        };
        Ok(super::block_on(server.read_once(DELIVERY))??)
    }

    /// Reads the resources and the faults found so far.
    pub(super) fn read(
        &self,
        sample: Option<&'static str>,
    ) -> anyhow::Result<(ConfigSet, Vec<ValidationError>)> {
        let mut all = match (&self.config[..], sample) {
            ([], Some(sample)) => config::parse(sample, SAMPLE, &self.default_config_namespace),
            ([], None) => {
                anyhow::bail!(usage!(
                    "--config: required, because this program has no sample configuration; write a directory"
                ))
            }
            _ => Parsed::default(),
        };
        for (url, filter) in filtered(&self.config)? {
            let parsed = match url {
                ConfigUrl::Files(path) => config::read(path, &self.default_config_namespace, FILE_FORMATS),
                server => self.read_server(server, &filter)?,
            };
            let resources = parsed.resources.into_iter();
            all.resources.extend(resources.filter(|resource| filter.includes(&resource.collection)));
            all.faults.extend(parsed.faults);
        }
        let (set, faults) = ConfigSet::of(all.resources);
        all.faults.extend(faults);
        Ok((set, all.faults))
    }
}

/// The name of the embedded configuration.
pub(super) const SAMPLE: &str = "the sample";

/// The time for a server to send its collections to commands that read them once.
const DELIVERY: Duration = Duration::from_secs(10);

/// The sources with their collections.
fn filtered(
    parts: &[Scoped<ConfigUrl>],
) -> Result<impl Iterator<Item = (&ConfigUrl, CollectionFilter)>, UsageError> {
    let named = parts.iter().map(|part| (part.url.to_string(), part.collections.as_ref()));
    let filters = collection_filters(named).map_err(UsageError::of)?;
    Ok(parts.iter().map(|part| &part.url).zip(filters))
}

fn on_field() -> impl TypedValueParser<Value = OnField> {
    one_of([("warn", OnField::Warn), ("ignore", OnField::Ignore), ("refuse", OnField::Refuse)])
}

fn on_unknown_quota() -> impl TypedValueParser<Value = OnUnknownQuota> {
    one_of([("grant", OnUnknownQuota::Grant), ("deny", OnUnknownQuota::Deny)])
}

fn on_deprecated() -> impl TypedValueParser<Value = OnDeprecated> {
    one_of([
        ("warn", OnDeprecated::Warn),
        ("ignore", OnDeprecated::Ignore),
        ("refuse", OnDeprecated::Refuse),
        ("schedule", OnDeprecated::Schedule),
    ])
}

fn on_failure() -> impl TypedValueParser<Value = OnFailure> {
    one_of([("mixer", OnFailure::Mixer), ("open", OnFailure::Open), ("closed", OnFailure::Closed)])
}
