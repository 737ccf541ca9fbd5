use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Once,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use tokio::{runtime::Handle, sync::watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::Status;

use super::{
    address::{Address, HostAddress},
    exchange::Sender,
    link::{Dialer, Link},
};

/// The connections of one handler: one, or one to each address of a name with calls in turn (round robin). The first call opens
/// them; background tasks maintain them until this is dropped.
#[derive(Debug)]
pub(super) struct Balancer {
    pub(super) dialer: Arc<Dialer>,
    runtime: Handle,
    /// The host to each of whose addresses a connection is made; `None` for a single connection.
    spread: Option<HostAddress>,
    links: watch::Sender<Links>,
    started: Once,
    turn: AtomicUsize,
    retired: CancellationToken,
    _retire: DropGuard,
}

/// The links by number: an address that disappeared and came back has a new one.
#[derive(Debug, Default)]
struct Links {
    links: BTreeMap<u64, Link>,
    /// Why the name cannot be resolved.
    unresolved: Option<Arc<str>>,
}

impl Links {
    /// Returns a connection for a call, or the reason of its failure; `None` if a connection may be ready soon.
    fn choose(&self, turn: usize) -> Option<Result<Sender, Arc<str>>> {
        let up = self.links.values().filter_map(up);
        if let Some(sender) = turn.checked_rem(up.clone().count()).and_then(|turn| up.clone().nth(turn)) {
            return Some(Ok(sender.clone()));
        }
        let mut down = None;
        for link in self.links.values() {
            match link {
                // A closed link that is still up: its task is about to publish the end.
                Link::Connecting | Link::Up(_) => return None,
                Link::Down(why) => down = Some(why),
            }
        }
        down.or(self.unresolved.as_ref()).map(|why| Err(why.clone()))
    }
}

fn up(link: &Link) -> Option<&Sender> {
    match link {
        Link::Up(sender) if !sender.http.is_closed() => Some(sender),
        _ => None,
    }
}

impl Balancer {
    /// Creates the connections of a handler, one to each address of the name if the address asks for that.
    pub(super) fn new(dialer: Dialer, runtime: Handle) -> Self {
        let retired = CancellationToken::new();
        Self {
            spread: match &dialer.address {
                Address::Host(host) if host.spread && host.literal().is_none() => Some(host.clone()),
                _ => None,
            },
            dialer: Arc::new(dialer),
            runtime,
            links: watch::Sender::default(),
            started: Once::new(),
            turn: AtomicUsize::new(0),
            _retire: retired.clone().drop_guard(),
            retired,
        }
    }

    /// Makes one connection only.
    pub(super) fn sticky(self) -> Self {
        Self { spread: None, ..self }
    }

    /// Returns a connection; waits while the first one is being made.
    ///
    /// # Errors
    /// UNAVAILABLE, at once if the last attempt failed.
    pub(super) async fn sender(&self) -> Result<Sender, Status> {
        self.start();
        let turn = self.turn.fetch_add(1, Relaxed);
        let mut found = self.links.borrow().choose(turn);
        if found.is_none() {
            let mut changes = self.links.subscribe();
            let links = changes.wait_for(|links| links.choose(turn).is_some()).await;
            found = links.ok().and_then(|links| links.choose(turn));
        }
        let found = found.unwrap_or_else(|| Err("the connection has just ended".into()));
        let address = &self.dialer.address;
        found.map_err(|why| Status::unavailable(format!("{address} cannot be reached: {why}")))
    }

    /// Waits until a connection is up.
    pub(super) async fn connected(&self) {
        self.start();
        let mut changes = self.links.subscribe();
        let _ = changes.wait_for(|links| links.links.values().any(|link| up(link).is_some())).await;
    }

    fn start(&self) {
        self.started.call_once(|| {
            let task = LinkTask {
                dialer: self.dialer.clone(),
                links: self.links.clone(),
                retired: self.retired.clone(),
            };
            match self.spread.clone() {
                Some(host) => self.runtime.spawn(task.run_all(host)),
                None => self.runtime.spawn(task.run_one(0, None, self.retired.clone())),
            };
        });
    }
}

/// Maintains links in the background.
#[derive(Clone)]
struct LinkTask {
    dialer: Arc<Dialer>,
    links: watch::Sender<Links>,
    retired: CancellationToken,
}

impl LinkTask {
    async fn run_one(self, number: u64, to: Option<SocketAddr>, retired: CancellationToken) {
        self.publish(number, &retired, Link::Connecting);
        self.dialer.run(to, &retired, |link| self.publish(number, &retired, link)).await;
    }

    fn publish(&self, number: u64, retired: &CancellationToken, link: Link) {
        self.links.send_modify(|links| {
            drop(if retired.is_cancelled() {
                links.links.remove(&number)
            } else {
                links.links.insert(number, link)
            });
        });
    }

    /// Maintains a link to each address of the name; resolves the name again at intervals, and while a link is down.
    async fn run_all(self, host: HostAddress) {
        let mut open: BTreeMap<SocketAddr, DropGuard> = BTreeMap::new();
        let mut number = 0;
        let mut changes = self.links.subscribe();
        let mut delays = self.dialer.options.reconnect.delays();
        loop {
            let again = match self.dialer.resolve(&host).await {
                Ok(addresses) => {
                    delays.reset();
                    open.retain(|address, _| addresses.contains(address));
                    for address in addresses {
                        open.entry(address).or_insert_with(|| {
                            let retired = self.retired.child_token();
                            number += 1;
                            tokio::spawn(self.clone().run_one(number, Some(address), retired.clone()));
                            retired.drop_guard()
                        });
                    }
                    self.links.send_modify(|links| links.unresolved = None);
                    self.dialer.options.resolve_interval
                }
                Err(error) => {
                    self.links.send_modify(|links| links.unresolved = Some(error.to_string().into()));
                    delays.next_delay()
                }
            };
            let down = async {
                tokio::time::sleep(self.dialer.options.reconnect.longest).await;
                let is_down =
                    changes.wait_for(|links| links.links.values().any(|link| matches!(link, Link::Down(_))));
                let _ = is_down.await;
            };
            tokio::select! {
                () = tokio::time::sleep(again) => {}
                () = down => {}
                () = self.retired.cancelled() => return,
            }
        }
    }
}
