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
    exchange::Sender,
    link::{Dialer, Link},
};

/// The connections of one handler: one, or one to each address of a name, of which calls take turns. They are made with
/// the first call and kept by tasks of their own until this is dropped.
#[derive(Debug)]
pub(super) struct Balancer {
    dialer: Arc<Dialer>,
    runtime: Handle,
    spread: bool,
    links: watch::Sender<Links>,
    started: Once,
    turn: AtomicUsize,
    retired: CancellationToken,
    _retire: DropGuard,
}

/// The links, each by a number of its own: an address that went away and came back has a new one.
#[derive(Debug, Default)]
struct Links {
    links: BTreeMap<u64, Link>,
    /// Why the name has no addresses.
    unresolved: Option<Arc<str>>,
}

/// What a call finds.
enum Found {
    Sender(Sender),
    /// A connection may stand soon.
    Soon,
    Nothing(Arc<str>),
}

impl Links {
    fn find(&self, turn: usize) -> Found {
        let up = || self.links.values().filter_map(up);
        let count = up().count();
        if let Some(sender) = turn.checked_rem(count).and_then(|turn| up().nth(turn)) {
            return Found::Sender(sender.clone());
        }
        let mut down = None;
        for link in self.links.values() {
            match link {
                // One that is up here has just ended; its keeper is about to say so.
                Link::Connecting | Link::Up(_) => return Found::Soon,
                Link::Down(why) => down = Some(why),
            }
        }
        match down.or(self.unresolved.as_ref()) {
            Some(why) => Found::Nothing(why.clone()),
            None => Found::Soon,
        }
    }
}

fn up(link: &Link) -> Option<&Sender> {
    match link {
        Link::Up(sender) if !sender.is_closed() => Some(sender),
        _ => None,
    }
}

impl Balancer {
    /// `sticky`: one connection, also where the address asks for one to each of the name's.
    pub(super) fn new(dialer: Dialer, runtime: Handle, sticky: bool) -> Self {
        let retired = CancellationToken::new();
        Self {
            spread: dialer.address.spread && dialer.address.literal().is_none() && !sticky,
            dialer: Arc::new(dialer),
            runtime,
            links: watch::Sender::default(),
            started: Once::new(),
            turn: AtomicUsize::new(0),
            _retire: retired.clone().drop_guard(),
            retired,
        }
    }

    /// A connection, waited for while the first one is being made. UNAVAILABLE at once while there can be none.
    pub(super) async fn sender(&self) -> Result<Sender, Status> {
        self.start();
        let turn = self.turn.fetch_add(1, Relaxed);
        let mut found = self.links.borrow().find(turn);
        if let Found::Soon = found {
            let mut changes = self.links.subscribe();
            let links = changes.wait_for(|links| !matches!(links.find(turn), Found::Soon)).await;
            found = links.map_or(Found::Soon, |links| links.find(turn));
        }
        let why = match found {
            Found::Sender(sender) => return Ok(sender),
            Found::Nothing(why) => why,
            Found::Soon => "the connection has just ended".into(),
        };
        let address = self.address();
        Err(Status::unavailable(format!("{address} cannot be reached: {why}")))
    }

    pub(super) fn address(&self) -> String {
        self.dialer.address.authority()
    }

    /// Waits until there is a connection.
    pub(super) async fn connected(&self) {
        self.start();
        let mut changes = self.links.subscribe();
        let _ = changes.wait_for(|links| links.links.values().any(|link| up(link).is_some())).await;
    }

    fn start(&self) {
        self.started.call_once(|| {
            let keeper = Keeper {
                dialer: self.dialer.clone(),
                links: self.links.clone(),
                retired: self.retired.clone(),
            };
            match self.spread {
                true => self.runtime.spawn(keeper.keep_all()),
                false => self.runtime.spawn(keeper.keep_one(0, None, self.retired.clone())),
            };
        });
    }
}

/// Keeps links in the background.
#[derive(Clone)]
struct Keeper {
    dialer: Arc<Dialer>,
    links: watch::Sender<Links>,
    retired: CancellationToken,
}

impl Keeper {
    async fn keep_one(self, number: u64, to: Option<SocketAddr>, retired: CancellationToken) {
        let publish = |link| {
            self.links.send_modify(|links| match retired.is_cancelled() {
                true => drop(links.links.remove(&number)),
                false => drop(links.links.insert(number, link)),
            });
        };
        publish(Link::Connecting);
        self.dialer.keep(to, &retired, publish).await;
    }

    /// Keeps a link to each address of the name, and looks the name up again now and then and while a link is down.
    async fn keep_all(self) {
        let mut kept: BTreeMap<SocketAddr, DropGuard> = BTreeMap::new();
        let mut number = 0;
        let mut changes = self.links.subscribe();
        let mut delays = self.dialer.options.reconnect.delays();
        loop {
            let again = match self.resolve().await {
                Ok(addresses) => {
                    delays.reset();
                    kept.retain(|address, _| addresses.contains(address));
                    for address in addresses {
                        kept.entry(address).or_insert_with(|| {
                            let retired = self.retired.child_token();
                            number += 1;
                            tokio::spawn(self.clone().keep_one(number, Some(address), retired.clone()));
                            retired.drop_guard()
                        });
                    }
                    self.links.send_modify(|links| links.unresolved = None);
                    self.dialer.options.resolve_interval
                }
                Err(why) => {
                    self.links.send_modify(|links| links.unresolved = Some(why.into()));
                    delays.next_delay()
                }
            };
            let down = async {
                tokio::time::sleep(self.dialer.options.reconnect.longest).await;
                let down = |links: &Links| links.links.values().any(|link| matches!(link, Link::Down(_)));
                let _ = changes.wait_for(down).await;
            };
            tokio::select! {
                () = tokio::time::sleep(again) => {}
                () = down => {}
                () = self.retired.cancelled() => return,
            }
        }
    }

    async fn resolve(&self) -> Result<Vec<SocketAddr>, String> {
        let address = &self.dialer.address;
        let found = self.dialer.options.resolver.resolve(&address.host, address.port);
        match tokio::time::timeout(self.dialer.options.connect_timeout, found).await {
            Ok(Ok(addresses)) => Ok(addresses),
            Ok(Err(error)) => Err(format!("{:?} has no address: {error}", address.host)),
            Err(_) => Err(format!("{:?} could not be looked up in time", address.host)),
        }
    }
}
