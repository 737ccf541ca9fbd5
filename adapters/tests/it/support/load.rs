//! HTTP/1.1 clients that send requests while something else changes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Duration,
};

use super::{
    eventually_within,
    http::{HttpConnection, HttpResponse},
};

/// Sends requests over a few connections until it is dropped or stopped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    /// Starts clients whose responses are checked: a description of what is wrong ends its client.
    pub(crate) fn start(
        front: &str,
        paths: &'static [&'static str],
        check: fn(&str, &HttpResponse) -> Result<(), String>,
    ) -> Self {
        let (stop, sent) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let clients = (0..4).map(|_| {
            let (front, stop, sent) = (front.to_owned(), stop.clone(), sent.clone());
            std::thread::spawn(move || {
                let mut connection = HttpConnection::open(&front);
                let mut wrong = Vec::new();
                for path in paths.iter().cycle() {
                    if stop.load(Relaxed) || !wrong.is_empty() {
                        break;
                    }
                    wrong.extend(check(path, &connection.get(path, &[])).err());
                    sent.fetch_add(1, Relaxed);
                }
                wrong
            })
        });
        let clients = clients.collect();
        Self { stop, sent, clients }
    }

    /// Waits until this many further requests are answered.
    pub(crate) fn until_sent(&self, requests: u64) {
        let end = self.sent.load(Relaxed) + requests;
        eventually_within(Duration::from_secs(600), "the requests are answered", || {
            (self.sent.load(Relaxed) >= end || self.clients.iter().any(JoinHandle::is_finished)).then_some(())
        });
    }

    /// Ends the clients, and returns the number of requests.
    pub(crate) fn finish(self) -> u64 {
        self.stop.store(true, Relaxed);
        let wrong: Vec<String> = self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        assert!(wrong.is_empty(), "{wrong:?}");
        self.sent.load(Relaxed)
    }
}
