//! Shares of three servers, in any order of requests, losses of the store and time.
#![allow(clippy::unwrap_used)]

use std::collections::{HashSet, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::window::Window;

const MAX: i64 = 1000;
const TICK: u64 = 100;
const TICKS: u64 = 20;
const LEASE: i64 = 10;
/// Half a window, as the longest life of a lease.
const LIFE: u64 = TICK * TICKS / 2;

const LEASED: Leased = Leased {
    counter: SharedFingerprint(1),
    window: Window::Rolling(Span { tick: Duration::from_millis(TICK), ticks: TICKS }),
    max: MAX,
};
const ALONE: Divided = Divided { servers: 1, leased: 0 };
const OF_THREE: Divided = Divided { servers: 3, leased: 0 };

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A request of a server for an amount.
    Request(usize, i64),
    /// A request of a server that its lease covers, if it has one.
    FromLease(usize, i64),
    /// After the store was away, a server sends a request without a lease.
    Send(usize, i64),
    /// The store answers the first one that was sent.
    Answer(usize),
    /// A server reports. The answer arrives, or is lost.
    Report(usize, bool),
    /// The store is away.
    Lose,
    /// The store is back.
    Return,
    /// All servers are back, and have reported.
    Settle,
    Pass(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let server = 0..3_usize;
    prop::collection::vec(
        prop_oneof![
            12 => (server.clone(), 1..90_i64).prop_map(|(server, amount)| Event::Request(server, amount)),
            3 => (server.clone(), 1..9_i64).prop_map(|(server, amount)| Event::FromLease(server, amount)),
            3 => (server.clone(), 1..90_i64).prop_map(|(server, amount)| Event::Send(server, amount)),
            3 => server.clone().prop_map(Event::Answer),
            3 => (server, any::<bool>()).prop_map(|(server, arrives)| Event::Report(server, arrives)),
            1 => Just(Event::Lose),
            1 => Just(Event::Return),
            1 => Just(Event::Settle),
            2 => (0..700_u64).prop_map(Event::Pass),
        ],
        1..300,
    )
}

/// The store as call.lua has it, without the end of leases that are not returned.
#[derive(Default)]
struct Store {
    slots: Vec<(u64, i64)>,
    leases: [i64; 3],
    reports: HashSet<u64>,
    reported: i64,
}

impl Store {
    fn used(&mut self, now: u64) -> i64 {
        self.slots.retain(|(at, _)| at + TICKS > now / TICK);
        self.slots.iter().map(|(_, amount)| amount).chain(&self.leases).sum()
    }

    fn report(&mut self, report: Report, now: u64) {
        if self.reports.insert(report.id) {
            self.slots.push((now / TICK, report.amount));
            self.reported += report.amount;
        }
    }

    /// Returns the amount granted.
    fn count(&mut self, amount: i64, now: u64) -> i64 {
        if self.used(now) + amount > MAX {
            return 0;
        }
        self.slots.push((now / TICK, amount));
        amount
    }

    /// Ends the lease of a server, and returns the amount granted and the next lease.
    fn call(&mut self, server: usize, returned: i64, amount: i64, wanted: i64, now: u64) -> (i64, i64) {
        self.leases[server] = 0;
        self.slots.push((now / TICK, returned));
        let granted = self.count(amount, now);
        if granted > 0 {
            self.leases[server] = wanted.min(MAX - self.used(now));
        }
        (granted, self.leases[server])
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Connected,
    Away,
    /// The store answers, and not all servers have reported.
    Back,
}

struct Server {
    shares: Shares,
    lease: i64,
    lease_used: i64,
    lease_end: u64,
    /// The amounts that were sent and reserved.
    sent: VecDeque<(i64, i64)>,
    /// What others were granted since the last trip that this server noted.
    unseen: i64,
}

impl Server {
    fn lease_left(&self, now: u64) -> i64 {
        if now < self.lease_end { self.lease - self.lease_used } else { 0 }
    }

    fn divided(&self, now: u64) -> Divided {
        Divided { servers: 3, leased: self.lease_left(now) }
    }
}

/// Three servers and their store.
struct Servers {
    store: Store,
    servers: [Server; 3],
    phase: Phase,
    now: u64,
    /// When which amount was granted.
    granted: Vec<(u64, i64)>,
    from_shares: i64,
    /// A third of what servers had not seen when the store was lost.
    excess: i64,
}

impl Servers {
    fn new() -> Self {
        let server = |id: u64| Server {
            shares: Shares::new(id << 32),
            lease: 0,
            lease_used: 0,
            lease_end: 0,
            sent: VecDeque::new(),
            unseen: 0,
        };
        Self {
            store: Store::default(),
            servers: [0, 1, 2].map(server),
            phase: Phase::Connected,
            now: 1_000_000,
            granted: Vec::new(),
            from_shares: 0,
            excess: 0,
        }
    }

    fn time(&self) -> Duration {
        Duration::from_millis(self.now)
    }

    fn grant(&mut self, server: usize, amount: i64, lease: i64) {
        self.granted.push((self.now, amount));
        for (other, state) in self.servers.iter_mut().enumerate() {
            if other != server {
                state.unseen += amount + lease;
            }
        }
    }

    fn grant_of_share(&mut self, server: usize, amount: i64) {
        let time = self.time();
        let state = &mut self.servers[server];
        let divided = state.divided(self.now);
        let granted = state.shares.grant(LEASED, &QuotaRequest::new(amount), divided, time).unwrap();
        self.from_shares += granted;
        self.grant(server, granted, 0);
    }

    fn report(&mut self, server: usize, arrives: bool) {
        let time = self.time();
        let shares = &mut self.servers[server].shares;
        while let Some(report) = shares.next_report(LEASED.counter, time) {
            self.store.report(report, self.now);
            if !arrives {
                return;
            }
            shares.reported(LEASED.counter, report);
        }
    }

    fn note_used(&mut self, server: usize) {
        let time = self.time();
        let used = self.store.used(self.now);
        self.servers[server].shares.note_used(LEASED, used, time);
        self.servers[server].unseen = 0;
    }

    fn trip(&mut self, server: usize, amount: i64) {
        self.report(server, true);
        let time = self.time();
        let state = &mut self.servers[server];
        let divided = state.divided(self.now);
        let mut reserved = 0;
        let mut wanted = LEASE;
        if self.phase == Phase::Back {
            reserved = state.shares.reserve(LEASED, amount..=amount + LEASE, divided, time).unwrap();
            if reserved == 0 {
                return self.grant_of_share(server, amount);
            }
            wanted = reserved - amount;
        }
        let (granted, lease) = self.store.call(server, state.lease_used, amount, wanted, self.now);
        (state.lease, state.lease_used, state.lease_end) = (lease, 0, self.now + LIFE);
        state.shares.note_granted(LEASED, granted, time);
        state.shares.unreserve(LEASED.counter, reserved);
        self.grant(server, granted, lease);
        if self.phase == Phase::Connected {
            self.note_used(server);
        }
    }

    fn send(&mut self, server: usize, amount: i64) {
        let time = self.time();
        let state = &mut self.servers[server];
        let divided = state.divided(self.now);
        let reserved = state.shares.reserve(LEASED, amount..=amount, divided, time).unwrap();
        if reserved > 0 {
            state.sent.push_back((amount, reserved));
        }
    }

    fn answer(&mut self, server: usize) {
        let time = self.time();
        let state = &mut self.servers[server];
        let Some((amount, reserved)) = state.sent.pop_front() else { return };
        let granted = self.store.count(amount, self.now);
        state.shares.note_granted(LEASED, granted, time);
        state.shares.unreserve(LEASED.counter, reserved);
        self.grant(server, granted, 0);
    }

    fn grant_of_lease(&mut self, server: usize, amount: i64) {
        let time = self.time();
        let state = &mut self.servers[server];
        if amount <= state.lease_left(self.now) {
            state.lease_used += amount;
            state.shares.note_granted(LEASED, amount, time);
            self.granted.push((self.now, amount));
        }
    }

    /// Ends the connections of all servers, and so what they sent.
    fn lose(&mut self) {
        self.phase = Phase::Away;
        for server in &mut self.servers {
            for (_, reserved) in server.sent.drain(..) {
                server.shares.unreserve(LEASED.counter, reserved);
            }
        }
    }

    /// Applies an event. If servers see all, each has made a trip just before the store is lost.
    fn apply(&mut self, event: Event, see_all: bool) {
        match (event, self.phase) {
            (Event::Pass(millis), _) => self.now += millis,
            (Event::FromLease(server, amount), _) => self.grant_of_lease(server, amount),
            (Event::Request(server, amount), Phase::Away) => self.grant_of_share(server, amount),
            (Event::Request(server, amount), _) => self.trip(server, amount),
            (Event::Send(server, amount), Phase::Back) => self.send(server, amount),
            (Event::Answer(server), _) => self.answer(server),
            (Event::Report(server, arrives), Phase::Back) => self.report(server, arrives),
            (Event::Lose, Phase::Connected) => {
                if see_all {
                    (0..3).for_each(|server| self.note_used(server));
                }
                let unseen: i64 = self.servers.iter().map(|server| server.unseen).sum();
                self.excess += unseen / 3 + i64::from(unseen % 3 > 0);
                self.lose();
            }
            (Event::Lose, Phase::Back) => self.lose(),
            (Event::Return, Phase::Away) => self.phase = Phase::Back,
            (Event::Settle, Phase::Back) => {
                (0..3).for_each(|server| self.report(server, true));
                self.phase = Phase::Connected;
            }
            _ => {}
        }
    }

    /// The amount granted in the window that ends now.
    fn in_window(&self) -> i64 {
        let within = self.granted.iter().filter(|(at, _)| at / TICK + TICKS > self.now / TICK);
        within.map(|(_, amount)| amount).sum()
    }
}

proptest! {
    #[test]
    fn servers_that_saw_what_all_were_granted_exceed_no_limit(events in events()) {
        let mut servers = Servers::new();
        for event in events {
            servers.apply(event, true);
            prop_assert!(servers.in_window() <= MAX, "{event:?} {:?}", servers.granted);
            prop_assert!(servers.store.reported <= servers.from_shares, "{event:?}");
        }
    }

    #[test]
    fn servers_exceed_a_limit_at_most_by_their_part_of_what_they_did_not_see(events in events()) {
        let mut servers = Servers::new();
        for event in events {
            servers.apply(event, false);
            let sum = servers.in_window();
            prop_assert!(sum <= MAX + servers.excess, "{sum} {event:?} {:?}", servers.granted);
            prop_assert!(servers.store.reported <= servers.from_shares, "{event:?}");
        }
    }
}

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn grant(shares: &mut Shares, amount: i64, divided: Divided, now: Duration) -> i64 {
    shares.grant(LEASED, &QuotaRequest::new(amount), divided, now).unwrap()
}

#[test]
fn a_share_is_an_equal_part_less_what_the_server_was_granted() {
    let mut shares = Shares::new(0);
    shares.note_granted(LEASED, 150, at(0));
    shares.note_granted(LEASED, -50, at(0));
    assert_eq!(grant(&mut shares, 234, OF_THREE, at(0)), 0);
    assert_eq!(grant(&mut shares, 200, OF_THREE, at(0)), 200);
    // What a lease has left is granted, too.
    assert_eq!(grant(&mut shares, 24, Divided { servers: 3, leased: 10 }, at(0)), 0);
    let rest = QuotaRequest::new(90).with_best_effort();
    assert_eq!(shares.grant(LEASED, &rest, Divided { servers: 3, leased: 10 }, at(0)), Some(23));
    let past = QuotaRequest::new(500).with_past_limit();
    assert_eq!(shares.grant(LEASED, &past, OF_THREE, at(0)), Some(500));
    assert_eq!(grant(&mut shares, 1, ALONE, at(0)), 1);
}

#[test]
fn a_share_is_at_most_an_equal_part_of_what_the_last_trip_left() {
    let mut shares = Shares::new(0);
    shares.note_used(LEASED, 601, at(0));
    // 333, less 201.
    assert_eq!(
        (grant(&mut shares, 133, OF_THREE, at(0)), grant(&mut shares, 132, OF_THREE, at(0))),
        (0, 132)
    );
    assert_eq!(grant(&mut shares, 1, OF_THREE, at(0)), 0);
    // The number of servers is that of the decision: 500, less 301 and 132.
    assert_eq!(shares.reserve(LEASED, 68..=68, Divided { servers: 2, leased: 0 }, at(0)), Some(0));
    assert_eq!(shares.reserve(LEASED, 67..=67, Divided { servers: 2, leased: 0 }, at(0)), Some(67));
    shares.unreserve(LEASED.counter, 67);
    // Others can use what they held as leases for half a window, and that counts for a window.
    assert_eq!(grant(&mut shares, 1, OF_THREE, at(TICK * TICKS + LIFE - 1)), 0);
    assert_eq!(grant(&mut shares, 333, OF_THREE, at(TICK * TICKS + LIFE)), 333);
}

#[test]
fn trips_at_the_same_time_are_granted_no_more_than_the_share() {
    let mut shares = Shares::new(0);
    shares.note_used(LEASED, 601, at(0));
    // 333, less 201: a request with a lease, and one with a smaller lease.
    assert_eq!(shares.reserve(LEASED, 60..=70, OF_THREE, at(0)), Some(70));
    assert_eq!(shares.reserve(LEASED, 60..=70, OF_THREE, at(0)), Some(62));
    assert_eq!(shares.reserve(LEASED, 1..=1, OF_THREE, at(0)), Some(0));
    assert_eq!(grant(&mut shares, 1, OF_THREE, at(0)), 0);
    // The store grants the first request without a lease, and refuses the other one.
    shares.note_granted(LEASED, 60, at(0));
    shares.unreserve(LEASED.counter, 70);
    shares.unreserve(LEASED.counter, 62);
    // What is left; and a counter is not forgotten during a trip.
    assert_eq!(shares.reserve(LEASED, 1..=100, OF_THREE, at(0)), Some(72));
    assert_eq!((shares.sweep(at(5000)), shares.counters.len()), (Vec::new(), 1));
    assert_eq!(grant(&mut shares, 262, OF_THREE, at(5000)), 0);
    shares.unreserve(LEASED.counter, 72);
    assert_eq!((shares.sweep(at(5000)), shares.counters.len()), (Vec::new(), 0));
}

#[test]
fn a_report_is_the_same_until_it_is_answered() {
    let mut shares = Shares::new(7);
    assert_eq!(shares.next_report(LEASED.counter, at(0)), None);
    grant(&mut shares, 20, ALONE, at(0));
    // A release before the report.
    assert_eq!(grant(&mut shares, -5, ALONE, at(0)), 5);
    let first = shares.next_report(LEASED.counter, at(0)).unwrap();
    assert_eq!((first.id, first.amount), (8, 15));
    grant(&mut shares, 3, ALONE, at(1));
    assert_eq!(shares.next_report(LEASED.counter, at(1)), Some(first));
    assert_eq!(shares.sweep(at(1)), [LEASED]);
    shares.reported(LEASED.counter, first);
    let second = shares.next_report(LEASED.counter, at(1)).unwrap();
    assert_eq!((second.id, second.amount), (9, 3));
    // The answer to a report that was sent twice.
    shares.reported(LEASED.counter, first);
    assert_eq!(shares.next_report(LEASED.counter, at(1)), Some(second));
    shares.reported(LEASED.counter, second);
    assert_eq!((shares.next_report(LEASED.counter, at(1)), shares.sweep(at(1))), (None, Vec::new()));
    // It is part of the share for its window.
    assert_eq!((grant(&mut shares, 983, ALONE, at(1)), grant(&mut shares, 982, ALONE, at(1))), (0, 982));
}

#[test]
fn amounts_of_former_windows_are_not_reported_and_counters_forgotten() {
    let mut shares = Shares::new(0);
    grant(&mut shares, 20, ALONE, at(0));
    shares.next_report(LEASED.counter, at(0)).unwrap();
    grant(&mut shares, 4, ALONE, at(1000));
    assert_eq!(shares.next_report(LEASED.counter, at(2000)).map(|report| report.amount), Some(4));
    assert_eq!((shares.sweep(at(5000)), shares.counters.len()), (Vec::new(), 0));
}

#[test]
fn without_room_for_a_counter_nothing_is_granted() {
    let mut shares = Shares::new(0);
    for counter in 0..MOST_COUNTERS {
        let leased = Leased { counter: SharedFingerprint(100 + counter as u128), ..LEASED };
        shares.note_granted(leased, 1, at(0));
    }
    assert_eq!(shares.grant(LEASED, &QuotaRequest::new(1), ALONE, at(0)), None);
    assert_eq!(shares.reserve(LEASED, 1..=1, ALONE, at(0)), None);
    assert!(shares.sweep(at(5000)).is_empty());
    assert_eq!(grant(&mut shares, 1, ALONE, at(5000)), 1);
}
