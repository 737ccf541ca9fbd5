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

use super::{Usage, logging, security::Identity, values};
use mixer_adapter_config::{
    Collection, ConfigUrl, Subscription, collection,
    mcp::{Change, Resource},
    source::{SourceSettings, Wanted},
    xds::collection_of,
};

pub(super) const EXAMPLES: &str = "\
Examples:
  mixer-adapter watch mcp://127.0.0.1:9901
  mixer-adapter watch mcp://galley:9901 --collection rules --full
  mixer-adapter watch xds://istiod:15010 --collection networking.istio.io/v1/ServiceEntry --once
  mixer-adapter watch xdss://istiod:15012 --cert-file cert.pem --key-file key.pem --ca-cert-file ca.pem
  mixer-adapter watch xds+delta://127.0.0.1:9901 --collection type.googleapis.com/envoy.config.cluster.v3.Cluster
  mixer-adapter watch mcp://127.0.0.1:9901 --once --timeout 5s --json | jq -r .name

Everything is accepted, whatever it says. What a body of a type that is not known here says is printed in base64.

Exit codes: 0 it has come, or nobody reads any more, 1 it has not in the time of --timeout, 2 the command line is wrong.";

/// Print what a server of configuration pushes, as it comes
#[derive(Debug, Args)]
pub(super) struct Watch {
    /// The server: mcp://HOST:PORT, xds://HOST:PORT (whole sets) or xds+delta://HOST:PORT (changes); mcps://, xdss:// and
    /// xdss+delta:// for TLS; mcp+aggregated:// for Istio 1.0
    #[arg(value_name = "URL")]
    server: ConfigUrl,

    /// What to ask for: `rules` and the like for Mixer's own, the full name of any other collection, or a type URL of xDS; can
    /// be given several times [default: Mixer's six]
    #[arg(long = "collection", value_name = "NAME", env = "MIXER_ADAPTER_COLLECTION", value_delimiter = ',', value_parser = wanted)]
    collections: Vec<Collection>,

    /// Print what resources say, too
    #[arg(long, env = "MIXER_ADAPTER_FULL", value_parser = values::switch())]
    full: bool,

    /// Print JSON, a line an event
    #[arg(long, env = "MIXER_ADAPTER_JSON", value_parser = values::switch())]
    json: bool,

    /// End when everything asked for has come once
    #[arg(long, env = "MIXER_ADAPTER_ONCE", value_parser = values::switch())]
    once: bool,

    /// End after so many events
    #[arg(long, value_name = "N", env = "MIXER_ADAPTER_COUNT", conflicts_with = "once", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Fail when what --once or --count waits for has not come in that time; 0 waits for ever
    #[arg(long, value_name = "DURATION", default_value = "0", env = "MIXER_ADAPTER_TIMEOUT", value_parser = values::duration)]
    timeout: Duration,

    #[command(flatten)]
    identity: Identity,

    /// What is logged, to stderr: error, warn, info, debug, trace, or as in RUST_LOG
    #[arg(long, value_name = "FILTER", default_value = "warn", env = "MIXER_ADAPTER_LOG")]
    log: String,
}

/// A collection by any of the names it goes by.
fn wanted(name: &str) -> Result<Collection, String> {
    let is_type_url = name.split_once('/').is_some_and(|(group, _)| group.contains('.') || group == "core");
    match collection(name) {
        _ if is_type_url => Ok(collection_of(name)),
        Ok(collection) => Ok(collection),
        Err(_) if name.contains('.') => Ok(Collection::new(name)),
        Err(error) => Err(error.to_string()),
    }
}

/// Something that happened to a collection.
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
    body: Option<Json>,
}

/// How an end was come to.
enum End {
    /// All that was waited for came.
    Enough,
    /// The server cannot be asked any more.
    Gone,
}

impl Watch {
    /// Prints until it has printed enough.
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
        let server = self.server.server(&settings).map_err(|error| Usage(error.to_string()))?;
        let Some(server) = server else {
            return Err(Usage(format!("{}: give a server, mcp://HOST:PORT", self.server)).into());
        };
        logging::start(&self.log, false)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("the runtime cannot start")?;
        runtime.block_on(async {
            let watched = self.print(server.connect(), settings.collections.len());
            let end = match values::unless_zero(self.timeout) {
                Some(longest) if self.once || self.count.is_some() => timeout(longest, watched).await,
                _ => Ok(watched.await),
            };
            match end {
                Ok(end) => end.map(|end| match end {
                    End::Enough => ExitCode::SUCCESS,
                    End::Gone => ExitCode::FAILURE,
                }),
                Err(_) => {
                    anyhow::bail!("{}: what is waited for has not come in {:?}", self.server, self.timeout)
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

    /// What a change means for resources of these names, which are those after it then.
    fn events<'a>(&self, change: &'a Change, names: &mut BTreeSet<String>) -> Vec<Event<'a>> {
        let event = |event, name| Event {
            event,
            collection: &change.collection,
            name,
            version: &change.version,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
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
        if self.json {
            return Ok(serde_json::to_string(event)? + "\n");
        }
        let Event { event: what, collection, name, version, body, .. } = event;
        let mut line = format!("{what:<7} {collection} {name} {version}").trim_end().to_owned() + "\n";
        if let Some(body) = body {
            line.push_str(&serde_json::to_string_pretty(body)?);
            line.push('\n');
        }
        Ok(line)
    }
}

/// What a resource says; what cannot be read of it says why.
fn body(resource: &Resource) -> Json {
    resource.spec().unwrap_or_else(|error| Json::String(error.to_string()))
}
