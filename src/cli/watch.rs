use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use serde_json::Value as Json;
use tokio::time::timeout;

use super::{UsageError, log_args, output_args::OutputArgs, tls_args::ClientTlsArgs, value_parsers};
use mixer_adapter_config::{
    Collection, ConfigUrl, ConfigUrlError, Subscription, collection,
    source::{SourceSettings, Wanted},
    stream::{Change, Resource, collection_of},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  mixer-adapter watch mcp://127.0.0.1:9901
  mixer-adapter watch mcp://galley:9901 --collection rules --full
  mixer-adapter watch 'mcp://127.0.0.1:9901?mode=resume' --collection istio/networking/v1alpha3/VirtualService
  mixer-adapter watch xds://istiod:15010 --collection networking.istio.io/v1/ServiceEntry --once
  mixer-adapter watch xdss://istiod:15012 --cert-file cert.pem --key-file key.pem --ca-cert-file ca.pem
  mixer-adapter watch xds+delta://127.0.0.1:9901 --collection type.googleapis.com/envoy.config.cluster.v3.Cluster
  mixer-adapter watch mcp://127.0.0.1:9901 --once --timeout 5s --json | jq -r .name

Every push is accepted. A body of an unknown type is printed in base64.

Exit codes: 0 all events arrived, or the reader closed the output, 1 --timeout expired, 2 usage error.";

/// Print the resources that a configuration server pushes
#[derive(Debug, Args)]
pub(super) struct Watch {
    /// The server: mcp://HOST:PORT, xds://HOST:PORT (state of the world) or xds+delta://HOST:PORT (incremental); mcps://, xdss:// and
    /// xdss+delta:// for TLS; mcp+aggregated:// for Istio 1.0
    #[arg(value_name = "URL")]
    server: ConfigUrl,

    /// Collections to request: short names such as `rules` for Mixer's own, the full name of any other collection, or an xDS
    /// type URL; can be repeated [default: Mixer's six]
    #[arg(long = "collection", value_name = "NAME", env = "MIXER_ADAPTER_COLLECTION", value_delimiter = ',', value_parser = wanted)]
    collections: Vec<Collection>,

    /// Print the metadata and the bodies of resources, too
    #[arg(long, env = "MIXER_ADAPTER_FULL", value_parser = value_parsers::switch())]
    full: bool,

    #[command(flatten)]
    output: OutputArgs,

    /// Exit when every requested collection has arrived once
    #[arg(long, env = "MIXER_ADAPTER_ONCE", value_parser = value_parsers::switch())]
    once: bool,

    /// Exit after this number of events
    #[arg(long, value_name = "N", env = "MIXER_ADAPTER_COUNT", conflicts_with = "once", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Fail if the events of --once or --count do not arrive in this time; 0 waits without limit
    #[arg(long, value_name = "DURATION", default_value = "0", env = "MIXER_ADAPTER_TIMEOUT", value_parser = value_parsers::duration)]
    timeout: Duration,

    #[command(flatten)]
    identity: ClientTlsArgs,

    /// Log filter: error, warn, info, debug, trace, or the syntax of RUST_LOG; logs go to stderr
    #[arg(long, value_name = "FILTER", default_value = "warn", env = "MIXER_ADAPTER_LOG")]
    log: String,
}

/// Parses a short name, a full name or a type URL of a collection.
fn wanted(name: &str) -> Result<Collection, ConfigUrlError> {
    let is_type_url = name.split_once('/').is_some_and(|(group, _)| group.contains('.') || group == "core");
    match collection(name) {
        _ if is_type_url => Ok(collection_of(name)),
        Ok(collection) => Ok(collection),
        Err(_) if name.contains('.') => Ok(Collection::new(name)),
        Err(error) => Err(error),
    }
}

/// A change of a collection.
#[derive(Serialize)]
struct Event<'a> {
    event: &'static str,
    collection: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    version: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    create_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Json>,
}

/// The reason why the output ended.
enum End {
    /// All requested events arrived.
    Enough,
    /// The connection ended for good.
    Gone,
}

impl Watch {
    /// Prints events until the conditions of the flags are met.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut settings = SourceSettings::new("istio-system");
        if !self.collections.is_empty() {
            let collections: BTreeSet<_> = self.collections.iter().collect();
            let wanted = |collection: &&Collection| Wanted {
                collection: collection.as_str().to_owned(),
                required: true,
            };
            settings.collections = collections.iter().map(wanted).collect();
        }
        if self.server.is_tls() {
            settings.tls = Some(self.identity.client()?);
        }
        let server = self.server.server(&settings).map_err(|error| UsageError(error.to_string()))?;
        let Some(server) = server else {
            return Err(UsageError(format!(
                "{}: not the URL of a server; write it like mcp://HOST:PORT",
                self.server
            ))
            .into());
        };
        log_args::start(&self.log, false)?;
        for collection in &self.collections {
            if let Some(similar) = collection.similar() {
                tracing::warn!(%collection, "no collection of Istio has this name; did you mean {similar}?");
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(async {
            let watched = self.print(server.connect(), settings.collections.len());
            let end = match value_parsers::unless_zero(self.timeout) {
                Some(longest) if self.once || self.count.is_some() => timeout(longest, watched).await,
                _ => Ok(watched.await),
            };
            match end {
                Ok(end) => end.map(|end| match end {
                    End::Enough => ExitCode::SUCCESS,
                    End::Gone => ExitCode::FAILURE,
                }),
                Err(_) => {
                    anyhow::bail!("{}: not all events arrived within {:?}", self.server, self.timeout)
                }
            }
        })
    }

    async fn print(&self, mut subscription: Subscription, collections: usize) -> anyhow::Result<End> {
        let mut known: BTreeMap<Arc<str>, BTreeSet<String>> = BTreeMap::new();
        let mut printed = 0;
        while let Some(offer) = subscription.changes.recv().await {
            let change = offer.content();
            let names = known.entry(change.collection.clone()).or_default();
            for event in self.events(change, names) {
                super::print(&self.line(&event)?)?;
                printed += 1;
                if self.count == Some(printed) {
                    return Ok(End::Enough);
                }
            }
            offer.accept();
            if self.once && known.len() == collections {
                return Ok(End::Enough);
            }
        }
        Ok(End::Gone)
    }

    /// The events of a change. `names` are the known resources of its collection, which it updates.
    fn events<'a>(&self, change: &'a Change, names: &mut BTreeSet<String>) -> Vec<Event<'a>> {
        let event = |event, name| Event {
            event,
            collection: &change.collection,
            name,
            version: &change.version,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            create_time: None,
            body: None,
        };
        let mut events = Vec::new();
        if change.full && change.resources.is_empty() {
            events.push(event("empty", ""));
        }
        for resource in &change.resources {
            let new = names.insert(resource.name.clone());
            events.push(Event {
                version: &resource.version,
                labels: resource.labels.clone(),
                annotations: resource.annotations.clone(),
                create_time: resource.created.map(|time| time.to_string()),
                body: self.full.then(|| body(resource)),
                ..event(if new { "added" } else { "changed" }, &resource.name)
            });
        }
        for name in &change.removed {
            names.remove(name);
            events.push(event("removed", name));
        }
        events
    }

    fn line(&self, event: &Event<'_>) -> anyhow::Result<String> {
        if let Some(data) = self.output.data() {
            return data.encode_one_of_many(event);
        }
        let Event { event: what, collection, name, version, labels, annotations, create_time, body } = event;
        let mut line = format!("{what:<7} {collection} {name} {version}").trim_end().to_owned() + "\n";
        if let Some(body) = body {
            if let Some(time) = create_time {
                line.push_str(&format!("create_time: {time}\n"));
            }
            for (field, values) in [("labels", labels), ("annotations", annotations)] {
                if !values.is_empty() {
                    line.push_str(&format!("{field}: {}\n", serde_json::to_string(values)?));
                }
            }
            line.push_str(&serde_json::to_string_pretty(body)?);
            line.push('\n');
        }
        Ok(line)
    }
}

/// The spec of a resource, or the reason why it cannot be decoded.
fn body(resource: &Resource) -> Json {
    resource.spec().unwrap_or_else(|error| Json::String(error.to_string()))
}
