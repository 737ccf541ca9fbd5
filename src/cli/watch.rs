use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    process::ExitCode,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use clap::Args;
use serde::Serialize;
use serde_json::Value as Json;
use tokio::{
    sync::mpsc::{self, error::TrySendError},
    time::{Instant, timeout, timeout_at},
};

use super::{
    UsageError, log_args, output_args::OutputArgs, source_args::ClientArgs, tls_args::ClientTlsArgs,
    value_parsers, watch_files::StateFiles,
};
use mixer_adapter_config::{Collection, Offer};
use mixer_adapter_streams::{
    ConfigUrl, ConfigUrlError, ServerUrl, SourceSettings, Subscription, Wanted,
    certify::{Certification, Outcome, Protocol, certify},
    collection,
    stream::{RawChange, RawResource, Trace, Traced, collection_of, type_urls_of},
    xds::sink::own_node,
};

/// Print the resources that a configuration server pushes
#[derive(Debug, Args)]
#[command(
    mut_arg("cert_file", |arg| arg.visible_alias("tls-cert-file")),
    mut_arg("key_file", |arg| arg.visible_alias("tls-key-file")),
    mut_arg("ca_cert_file", |arg| arg.visible_alias("tls-ca-file")),
    mut_arg("mcp_server_san", |arg| arg.visible_alias("tls-server-name")),
    mut_arg("config_token_file", |arg| arg.visible_alias("token-file")),
)]
pub(super) struct Watch {
    /// The server: mcp://HOST:PORT, xds://HOST:PORT (state of the world) or xds+delta://HOST:PORT (incremental)
    ///
    /// xds+http://HOST:PORT polls; mcp+aggregated:// and mcp+aggregated-delta:// are for Istio 1.0; mcps://, xdss:// and
    /// xds+https:// use TLS
    #[arg(value_name = "URL")]
    server: ConfigUrl,

    /// Collections to request
    ///
    /// Short names such as `rules` for Mixer's own, the full name of any other collection, an xDS type URL, or of xDS servers an xdstp
    /// name or collection; can be repeated [default: Mixer's six]
    #[arg(long = "collection", value_name = "NAME", value_delimiter = ',', value_parser = requested)]
    collections: Vec<Requested>,

    /// Print the metadata and the bodies of resources, too
    #[arg(long)]
    full: bool,

    #[command(flatten)]
    output: OutputArgs,

    /// Print the messages of the streams instead, as a sequence diagram
    ///
    /// Time in UTC, V= version, R= resources, N= nonce, T= type
    #[arg(long)]
    trace: bool,

    /// Write the state of the server to this new directory, too, a file for each collection
    ///
    /// `validate`, `diff` and `serve` read them
    #[arg(long, value_name = "DIR", conflicts_with = "certify")]
    write: Option<PathBuf>,

    /// Check that the server keeps the rules of MCP or xDS, print the result of each check, and exit
    ///
    /// An answer may take --timeout, 5s by default
    #[arg(long, conflicts_with_all = ["trace", "once", "count", "full"])]
    certify: bool,

    /// Exit when every requested collection has arrived once
    #[arg(long)]
    once: bool,

    /// Exit after this number of events
    #[arg(long, value_name = "N", conflicts_with = "once", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Fail if the events of --once or --count do not arrive in this time
    ///
    /// 0 waits without limit
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = value_parsers::duration)]
    timeout: Duration,

    #[command(flatten)]
    client: ClientArgs,

    #[command(flatten)]
    identity: ClientTlsArgs,

    /// Log filter: error, warn, info, debug, trace, or the syntax of RUST_LOG
    ///
    /// Logs go to stderr
    #[arg(long, value_name = "FILTER", default_value = "warn")]
    log: String,
}

/// A requested collection.
#[derive(Clone, Debug)]
struct Requested {
    collection: Collection,
    /// The name of a resource or of a collection of them, if not all are asked for.
    name: Option<String>,
}

/// Parses a short name, a full name or a type URL of a collection, or an xdstp name.
fn requested(text: &str) -> Result<Requested, ConfigUrlError> {
    let (collection, name) = match xdstp_type(text) {
        Some(message) => (collection_of(&format!("type.googleapis.com/{message}")), Some(text.to_owned())),
        None => (wanted(text)?, None),
    };
    Ok(Requested { collection, name })
}

/// The type of the resources that an xdstp name is for.
fn xdstp_type(name: &str) -> Option<&str> {
    let (_, path) = name.strip_prefix("xdstp://")?.split_once('/')?;
    path.split_once('/').map(|(message, _)| message)
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
#[derive(Clone, Default, Serialize)]
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

impl Watch {
    /// Prints events until the conditions of the flags are met.
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let mut settings = self.client.apply(SourceSettings::new("istio-system"));
        if !self.collections.is_empty() {
            let collections: BTreeSet<_> =
                self.collections.iter().map(|requested| &requested.collection).collect();
            settings.collections = collections.into_iter().map(Wanted::required).collect();
        }
        self.name_resources(&mut settings)?;
        if self.server.is_tls() {
            settings.tls =
                Some(self.identity.client(self.client.has_token() || !self.identity.names_certificate())?);
        }
        let server = self.server.server(&settings).map_err(UsageError::of)?;
        let Some(server) = server else {
            anyhow::bail!(usage!("{}: not the URL of a server; write it like mcp://HOST:PORT", self.server));
        };
        log_args::start(&self.log, false, None)?;
        for Requested { collection, .. } in &self.collections {
            if let Some(similar) = collection.similar() {
                tracing::warn!(%collection, "no known collection or type has this name; did you mean {similar}?");
            }
        }
        if self.certify {
            return super::block_on(self.certify(&settings))?;
        }
        let (trace, traced) = mpsc::channel(MAX_UNPRINTED);
        let server = if self.trace {
            server.tracing(Trace::new(move |traced| {
                if let Err(TrySendError::Full(_)) = trace.try_send((SystemTime::now(), traced)) {
                    tracing::warn!("more messages arrive than can be printed: the diagram lacks one");
                }
            }))
        } else {
            // The channel closes.
            server
        };
        super::block_on(async {
            let watched = self.print(server.connect(), traced, settings.collections.len());
            match value_parsers::unless_zero(self.timeout) {
                Some(longest) if self.once || self.count.is_some() => {
                    let ended = timeout(longest, watched).await;
                    ended.ok().with_context(|| {
                        format!("{}: not all events arrived within {longest:?}", self.server)
                    })?
                }
                _ => watched.await,
            }
        })?
    }

    /// Asks for the resources that are named instead of all of their type.
    fn name_resources(&self, settings: &mut SourceSettings) -> Result<(), UsageError> {
        for Requested { collection, name } in &self.collections {
            let Some(name) = name else { continue };
            let ConfigUrl::Server(ServerUrl { protocol: Protocol::Xds(..) | Protocol::Rest, .. }) =
                self.server
            else {
                return Err(usage!("{name}: xdstp names are for xds:// and xds+http:// servers"));
            };
            for type_url in type_urls_of(collection) {
                settings.resource_names.entry(type_url).or_default().push(name.clone());
            }
        }
        Ok(())
    }

    /// Checks the server, and prints the results.
    async fn certify(&self, settings: &SourceSettings) -> anyhow::Result<ExitCode> {
        let ConfigUrl::Server(server) = &self.server else {
            return Err(usage!("--certify: {} is not a server; write mcp://HOST:PORT, xds://HOST:PORT, xds+delta://HOST:PORT or \
                 xds+http://HOST:PORT",
                self.server)
            .into());
        };
        let peer = server.peer(settings).map_err(UsageError::of)?;
        let type_urls = settings
            .collections
            .iter()
            .filter_map(|wanted| match server.protocol {
                Protocol::Mcp | Protocol::Aggregated(_) => Some(wanted.collection.clone()),
                _ => type_urls_of(&Collection::new(&wanted.collection)).into_iter().next(),
            })
            .collect();
        let mut certification = Certification::new(server.protocol, type_urls, own_node(settings));
        if let Some(patience) = value_parsers::unless_zero(self.timeout) {
            certification = certification.patience(patience);
        }
        let checks = certify(&peer, &certification).await?;
        for check in &checks {
            if let Some(data) = self.output.data() {
                super::print(&data.encode_one_of_many(check)?)?;
                continue;
            }
            let line = match &check.outcome {
                Outcome::Passed => format!("pass  {}", check.rule),
                Outcome::Failed(observed) => format!("FAIL  {} ({}): {observed}", check.rule, check.type_url),
                Outcome::Skipped(reason) => format!("skip  {}: {reason}", check.rule),
                outcome => format!("{outcome:?}  {}", check.rule),
            };
            super::print(&(line + "\n"))?;
        }
        let failed = checks.iter().any(|check| matches!(check.outcome, Outcome::Failed(_)));
        Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// The next offer. Messages of the streams that come before it are printed.
    async fn next(
        changes: &mut mpsc::Receiver<Offer<RawChange>>,
        traced: &mut mpsc::Receiver<Observed>,
    ) -> anyhow::Result<Option<Offer<RawChange>>> {
        loop {
            tokio::select! {
                biased;
                Some(traced) = traced.recv() => super::print(&diagram(&traced))?,
                offer = changes.recv() => return Ok(offer),
            }
        }
    }

    async fn print(
        &self,
        mut subscription: Subscription,
        mut traced: mpsc::Receiver<Observed>,
        collections: usize,
    ) -> anyhow::Result<ExitCode> {
        let mut known: BTreeMap<Arc<str>, BTreeSet<String>> = BTreeMap::new();
        let mut files = self.write.as_deref().map(StateFiles::open).transpose()?;
        let mut printed = 0;
        while let Some(offer) = Self::next(&mut subscription.changes, &mut traced).await? {
            let change = offer.content();
            if let Some(files) = &mut files {
                files.apply(change)?;
            }
            let names = known.entry(change.collection.clone()).or_default();
            for event in self.events(change, names) {
                if !self.trace {
                    super::print(&self.line(&event)?)?;
                }
                printed += 1;
                if self.count == Some(printed) {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            offer.accept();
            if self.once && known.len() == collections {
                // The diagram ends with the answer to the last response.
                let deadline = Instant::now() + ANSWER;
                while let Ok(Some(last)) = timeout_at(deadline, traced.recv()).await {
                    super::print(&diagram(&last))?;
                }
                return Ok(ExitCode::SUCCESS);
            }
        }
        Ok(ExitCode::FAILURE)
    }

    /// The events of a change. `names` are the known resources of its collection, which it updates.
    fn events<'a>(&self, change: &'a RawChange, names: &mut BTreeSet<String>) -> Vec<Event<'a>> {
        let of_change =
            Event { collection: &change.collection, version: &change.version, ..Event::default() };
        let mut events = Vec::new();
        if change.full && change.resources.is_empty() {
            events.push(Event { event: "empty", ..of_change.clone() });
        }
        for resource in &change.resources {
            let new = names.insert(resource.name.clone());
            events.push(Event {
                event: if new { "added" } else { "changed" },
                name: &resource.name,
                version: &resource.version,
                labels: resource.labels.clone(),
                annotations: resource.annotations.clone(),
                create_time: resource.created.map(|time| time.to_string()),
                body: self.full.then(|| body(resource)),
                ..of_change.clone()
            });
        }
        for name in &change.removed {
            names.remove(name);
            events.push(Event { event: "removed", name, ..of_change.clone() });
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

/// A message with its time.
type Observed = (SystemTime, Traced);

/// A message as a line of a sequence diagram, as PlantUML and Mermaid read it.
fn diagram((time, traced): &Observed) -> String {
    let time = time_of_day(*time);
    match traced {
        Traced::Sent(message) => {
            let ack = if message.nonce.is_empty() || message.error.is_some() { "" } else { " ACK" };
            format!("client -> server: {time} {message}{ack}\n")
        }
        Traced::Received(message) => format!("server -> client: {time} {message}\n"),
        Traced::Ended(status) => {
            format!("server --> client: {time} stream ended, {:?}: {}\n", status.code(), status.message())
        }
        other => format!("{time} {other:?}\n"),
    }
}

/// Formats the time of day in UTC, to the millisecond.
fn time_of_day(time: SystemTime) -> String {
    let millis = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis();
    let (seconds, millis) = (millis / 1000, millis % 1000);
    format!("{:02}:{:02}:{:02}.{millis:03}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}

/// The time that the answer to the last response of a diagram may take. Without a diagram there is nothing to wait for.
const ANSWER: Duration = Duration::from_millis(200);
/// Messages of a diagram that wait to be printed.
const MAX_UNPRINTED: usize = 1 << 14;

/// The spec of a resource, or the reason why it cannot be decoded.
fn body(resource: &RawResource) -> Json {
    resource.spec().unwrap_or_else(|error| Json::String(error.to_string()))
}
