//! A sink as a source of configuration for the engine.

use std::{collections::BTreeMap, future::Future, pin::Pin, sync::Arc, time::Duration};

use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{
    Delivery, DialOptions, Peer, convert,
    sink::{self, Cache, Sink, SinkOptions},
};
use crate::config::{
    Collection, Kind,
    source::{Answer, Source, SourceSettings, Update},
};

/// How long pushes of several collections are gathered after the last one: what belongs together comes together, but in no order.
const QUIET: Duration = Duration::from_millis(200);
/// The longest they are, however many come.
const LONGEST: Duration = Duration::from_secs(2);

/// Configuration that arrives by MCP.
///
/// Pushes that arrive together are one update. When it is refused, each is tried by itself, in the order Mixer processes kinds, so that
/// one bad rule does not hold up the handlers that came with it.
#[derive(Debug)]
pub struct McpSource {
    source: Peer,
    options: SinkOptions,
    dial: DialOptions,
    cache: Option<Cache>,
}

impl McpSource {
    /// Configuration from the `ResourceSource` of a peer.
    pub fn new(source: Peer, options: SinkOptions) -> Self {
        Self { source, options, dial: DialOptions::default(), cache: None }
    }

    /// The same, as the settings of sources say.
    pub fn of(source: Peer, settings: &SourceSettings) -> Self {
        let options = SinkOptions {
            collections: settings.collections.clone(),
            skip_bad_resources: settings.skip_bad_resources,
            ..SinkOptions::new(sink_id(), [] as [&str; 0])
        };
        Self { cache: settings.cache.clone(), ..Self::new(source, options) }
    }

    /// The same, dialed otherwise.
    #[must_use]
    pub fn dialed(self, dial: DialOptions) -> Self {
        Self { dial, ..self }
    }

    /// The same, kept on disk.
    #[must_use]
    pub fn kept(self, cache: Cache) -> Self {
        Self { cache: Some(cache), ..self }
    }

    async fn follow(self, updates: mpsc::Sender<Update>) {
        let name = self.source.to_string();
        let required = self.options.collections.iter().filter(|wanted| wanted.required);
        let required: Vec<String> = required.map(|wanted| wanted.collection.clone()).collect();
        let (sink, changes) = Sink::start(self.options, self.cache);
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        tokio::spawn(sink::dial(sink, self.source, self.dial, stop));
        deliver(&name, &required, changes, &updates).await;
    }
}

impl Source for McpSource {
    fn name(&self) -> String {
        self.source.to_string()
    }

    fn run(self: Box<Self>, updates: mpsc::Sender<Update>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(self.follow(updates))
    }
}

/// An id for the sink of this program: the host's name tells it from others, and is what a pod is called.
pub fn sink_id() -> String {
    match std::env::var("HOSTNAME") {
        Ok(host) if !host.is_empty() => format!("mixer-adapter~{host}"),
        _ => "mixer-adapter".to_owned(),
    }
}

/// The six collections of Mixer's own kinds.
pub fn mixer_collections() -> impl Iterator<Item = String> {
    Collection::mixer().map(|collection| collection.as_str().to_owned())
}

/// Hands what a sink delivers on as updates, until nobody takes them or nothing comes any more. The first waits for all required
/// collections: rules mean nothing before their handlers are there.
pub async fn deliver(
    source: &str,
    required: &[String],
    mut changes: mpsc::Receiver<Delivery>,
    updates: &mpsc::Sender<Update>,
) {
    let source: Arc<str> = source.into();
    let mut gathered = BTreeMap::new();
    let mut complete = false;
    loop {
        let arrived = tokio::select! {
            arrived = changes.recv() => arrived,
            () = updates.closed() => return,
        };
        let Some(arrived) = arrived else { return };
        gathered.insert(arrived.change().collection.clone(), arrived);
        gather(&mut changes, &mut gathered).await;
        complete |= required.iter().all(|collection| gathered.contains_key(collection.as_str()));
        if !complete {
            continue;
        }
        let mut together: Vec<_> = std::mem::take(&mut gathered).into_values().collect();
        together.sort_by_key(|delivery| order(&delivery.change().collection));
        if offer(&source, together, updates).await.is_none() {
            return;
        }
    }
}

/// Takes what else comes soon. Of a collection, nothing does: it waits for its verdict.
async fn gather(changes: &mut mpsc::Receiver<Delivery>, gathered: &mut BTreeMap<Arc<str>, Delivery>) {
    let end = Instant::now() + LONGEST;
    while let Ok(Some(arrived)) = timeout_at(end.min(Instant::now() + QUIET), changes.recv()).await {
        gathered.insert(arrived.change().collection.clone(), arrived);
    }
}

/// Mixer's kinds in the order they are processed in, then everything else.
fn order(collection: &str) -> (bool, Option<Kind>) {
    let role = Collection::new(collection).role();
    (role.is_none(), role)
}

/// Offers changes, and passes on what is said to them. `None` if nobody takes updates any more.
async fn offer(source: &Arc<str>, together: Vec<Delivery>, updates: &mpsc::Sender<Update>) -> Option<()> {
    let mut readable = Vec::new();
    for delivery in together {
        match convert::to_update(delivery.change(), source) {
            Ok(change) => readable.push((delivery, change)),
            Err(rejection) => delivery.reject(rejection),
        }
    }
    if readable.is_empty() {
        return Some(());
    }
    let changes = readable.iter().map(|(_, change)| change.clone()).collect();
    match send(source, changes, updates).await? {
        Answer::Applied => readable.into_iter().for_each(|(delivery, _)| delivery.accept()),
        Answer::Rejected(faults) if readable.len() == 1 => {
            for (delivery, _) in readable {
                let rejection = convert::to_rejection(&delivery.change().collection, &faults);
                delivery.reject(rejection);
            }
        }
        Answer::Rejected(_) => {
            for (delivery, change) in readable {
                match send(source, vec![change], updates).await? {
                    Answer::Applied => delivery.accept(),
                    Answer::Rejected(faults) => {
                        let rejection = convert::to_rejection(&delivery.change().collection, &faults);
                        delivery.reject(rejection);
                    }
                }
            }
        }
    }
    Some(())
}

async fn send(
    source: &Arc<str>,
    changes: Vec<crate::config::source::Change>,
    updates: &mpsc::Sender<Update>,
) -> Option<Answer> {
    let (update, answer) = Update::new(source.clone(), changes, Vec::new());
    updates.send(update).await.ok()?;
    answer.await.ok()
}
