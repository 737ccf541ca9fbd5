//! The tasks of a source: one per stream, each with a state machine.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, Streaming};

use super::{
    catalogue::Catalogue,
    dialogue::{Dialogue, Meaning},
    pushed::Pushed,
    status::{PeerStatus, Registered, Registry},
};
use crate::{
    certify::client_rules::ClientRules,
    stream::{
        admission::AdmittedStream,
        clock::{now, sleep_until},
        metrics::SOURCE,
        raw_change::RawChange,
        redial::Ended,
        shorthand::Summarize as _,
    },
};
use mixer_adapter_config::{ValidationError, envoy};
use mixer_adapter_core::framework::settings;
use mixer_adapter_net::{Bucket, Rate, grpc::CallMemory};

/// The time for a sink that does not read to receive the reason of the end of its stream.
const LAST_WORD: Duration = Duration::from_secs(5);

settings! {
    /// The options of a source.
    #[derive(Clone, Copy, Debug)]
    #[non_exhaustive]
    pub struct ConfigServerOptions {
        /// Sends changes only to sinks that request changes only.
        incremental: bool = true,
        /// The rate of requests that are read from one stream.
        requests: Rate = Rate { burst: 100, every: Duration::from_secs(1) },
        /// Serves version 2 of Envoy's API, too.
        v2: bool = true,
        /// Checks clients against the rules of the protocols. Violations are logged, and listed in their status.
        certify: bool = false,
    }
}

/// A source that serves its newest state to any number of sinks.
#[derive(Clone, Debug)]
pub struct ConfigServer {
    catalogue: Arc<watch::Sender<Arc<Catalogue>>>,
    pub(crate) options: ConfigServerOptions,
    registry: Registry,
    faults: Arc<Mutex<Arc<[ValidationError]>>>,
    pub(crate) closed: CancellationToken,
}

impl ConfigServer {
    /// Creates a source that serves the catalogue.
    pub fn new(catalogue: Catalogue, options: ConfigServerOptions) -> Self {
        let (catalogue, _) = watch::channel(Arc::new(catalogue));
        Self {
            catalogue: Arc::new(catalogue),
            options,
            registry: Registry::default(),
            faults: Arc::default(),
            closed: CancellationToken::new(),
        }
    }

    /// Applies a change, and pushes it to the sinks that it affects.
    pub fn apply(&self, change: &RawChange) {
        self.apply_all(std::slice::from_ref(change));
    }

    /// Applies changes that belong together: no sink receives only some of them.
    pub(crate) fn apply_all(&self, changes: &[RawChange]) {
        self.catalogue.send_if_modified(|catalogue| {
            let catalogue = Arc::make_mut(catalogue);
            let news = changes.iter().filter(|change| catalogue.apply(change));
            news.count() > 0
        });
    }

    /// Waits until a change was applied.
    pub async fn filled(&self) {
        // The sender lives as long as this does.
        let _ = self.catalogue.subscribe().wait_for(|catalogue| catalogue.is_filled()).await;
    }

    /// Returns the faults of resources that cannot be served.
    pub fn faults(&self) -> Arc<[ValidationError]> {
        self.faults.lock().clone()
    }

    pub(crate) fn set_faults(&self, faults: Vec<ValidationError>) {
        *self.faults.lock() = faults.into();
    }

    /// Counts a request of a client for a type, if it is of version 2 of Envoy's API; an error if that is not served.
    pub(crate) fn check_version(&self, type_url: &str, client: &str) -> Result<(), Status> {
        let Some(successor) = type_url.rsplit('/').next().and_then(envoy::successor) else {
            return Ok(());
        };
        SOURCE.requested_v2(type_url, client);
        if self.options.v2 {
            Ok(())
        } else {
            Err(Status::unimplemented(format!(
                "version 2 of Envoy's API is turned off here; ask for {successor} by version 3"
            )))
        }
    }

    /// Returns the served state.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.catalogue.borrow().clone()
    }

    /// Returns the served state, and each later one.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<Catalogue>> {
        self.catalogue.subscribe()
    }

    /// Lists a client without a stream while it waits for changes.
    pub(crate) fn list(&self, peer: PeerStatus) -> impl Drop + use<> {
        self.registry.insert(peer, None)
    }

    /// Ends all streams, so that sinks connect to another source.
    pub fn close(&self) {
        self.closed.cancel();
    }

    /// Returns the connected sinks.
    pub fn sinks(&self) -> Vec<PeerStatus> {
        self.registry.peers()
    }

    /// Records a request, and returns whether it accepts a push; an error ends the stream.
    fn on_request<D: Dialogue>(
        &self,
        dialogue: &mut D,
        request: D::Request,
        current: &Catalogue,
        registered: &Registered,
        rules: Option<&mut ClientRules>,
    ) -> Result<bool, Status> {
        let size = request.encoded_len();
        let shorthand = rules.is_some().then(|| request.shorthand());
        let event = dialogue.on_request(request, current)?;
        SOURCE.received(&event.collection, size);
        let is_accepted = event.meaning == Meaning::Accepted;
        let type_url = event.collection.clone();
        // The first message of a source that dials is for no type.
        let answers = event.meaning != Meaning::Triggered;
        if let (Some(rules), Some(shorthand), true) = (rules, shorthand, answers) {
            registered.record_violations(rules.received(&shorthand, &type_url));
        }
        self.check_version(&type_url, &registered.record(event)).map(|()| is_accepted)
    }

    /// Serves one stream until it ends. Returns the reason. Its requests are limited in rate, and the names in them that it holds take memory
    /// of `memory`.
    pub(crate) async fn exchange<D: Dialogue>(
        self,
        mut dialogue: D,
        peer: String,
        mut requests: Streaming<D::Request>,
        pushes: mpsc::Sender<Result<Pushed<D::Push>, Status>>,
        limits: ExchangeLimits,
    ) -> Ended {
        let ExchangeLimits { requests: rate, memory, admitted } = limits;
        let mut catalogue = self.catalogue.subscribe();
        let mut bucket = Bucket::new(rate);
        let registered = self.registry.register(peer);
        let mut good = false;
        let mut rules = self.options.certify.then(ClientRules::default);
        loop {
            let current = catalogue.borrow_and_update().clone();
            dialogue.elapsed(now());
            let due = dialogue.is_due(&current);
            let wakeup = dialogue.wakeup();
            let request = async {
                if let Some(at) = bucket.wait(now()) {
                    sleep_until(Some(at)).await;
                }
                requests.message().await
            };
            let status = tokio::select! {
                // Created only when there is room for it, from the newest state.
                room = pushes.reserve(), if due => match (room, dialogue.next(&current)) {
                    (Ok(room), Some(push)) => {
                        rules.iter_mut().for_each(|rules| rules.sent(&push.message.shorthand()));
                        room.send(Ok(push));
                        continue;
                    }
                    (Ok(_), None) => continue,
                    (Err(_), _) => {
                        SOURCE.not_sent(Code::Cancelled);
                        Status::cancelled("the sink is gone")
                    }
                },
                request = request => match request {
                    Ok(Some(request)) => {
                        bucket.take(now());
                        let is_accepted =
                            self.on_request(&mut dialogue, request, &current, &registered, rules.as_mut());
                        let held = dialogue.names_size();
                        let has_memory = memory.as_ref().map_or(Ok(()), |memory| memory.resize(held));
                        match has_memory.and(is_accepted) {
                            Ok(is_accepted) => {
                                good |= is_accepted;
                                continue;
                            }
                            Err(status) => status,
                        }
                    }
                    Ok(None) => Status::ok("the sink ended it"),
                    Err(status) => {
                        SOURCE.not_received(status.code());
                        status
                    }
                },
                Ok(()) = catalogue.changed() => continue,
                () = sleep_until(wakeup) => continue,
                status = async {
                    match &admitted {
                        Some(admitted) => admitted.evicted().await,
                        None => std::future::pending().await,
                    }
                } => status,
                () = self.closed.cancelled() => Status::unavailable("the source is going away"),
            };
            if let Some(rules) = rules {
                let unanswered = if status.code() == Code::Ok { rules.unanswered() } else { Vec::new() };
                registered.record_violations(unanswered);
                registered.log_certified();
            }
            if status.code() != Code::Ok {
                // A sink that has ended, or does not read, does not receive it.
                let _ = pushes.send_timeout(Err(status.clone()), LAST_WORD).await;
            }
            return Ended { status, good, resolved: false };
        }
    }
}

/// The limits of one stream.
pub(crate) struct ExchangeLimits {
    /// How often the sink may send requests.
    pub(crate) requests: Rate,
    /// The memory of the names that it holds; `None` for a stream that this source opened.
    pub(crate) memory: Option<CallMemory>,
    /// `None` for a stream that this source opened.
    pub(crate) admitted: Option<AdmittedStream>,
}
