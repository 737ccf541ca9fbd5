//! Leases of several servers, in any order of calls, losses and time.
#![allow(clippy::unwrap_used)]

use mixer_adapter_quota::Span;
use proptest::prelude::*;

use super::*;

const MAX: i64 = 1000;
const TICK: u64 = 100;
const TICKS: u64 = 20;
/// The length of the window, which is shorter than 5 s.
const GRACE: u64 = TICK * TICKS;

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A request of a server for an amount.
    Request(usize, i64),
    /// The store runs a trip that is on its way.
    Run(usize),
    /// The answer of a trip that the store has run arrives, or is lost.
    Answer(usize, bool),
    Sweep(usize),
    /// A server ends without returning its leases, and starts again.
    Kill(usize),
    Close(usize),
    Pass(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let server = 0..3_usize;
    prop::collection::vec(
        prop_oneof![
            12 => (server.clone(), 1..30_i64).prop_map(|(server, amount)| Event::Request(server, amount)),
            8 => (0..8_usize).prop_map(Event::Run),
            8 => (0..8_usize, prop::bool::weighted(0.9)).prop_map(|(at, arrives)| Event::Answer(at, arrives)),
            2 => server.clone().prop_map(Event::Sweep),
            1 => server.clone().prop_map(Event::Kill),
            1 => server.prop_map(Event::Close),
            6 => (0..400_u64).prop_map(Event::Pass),
        ],
        1..600,
    )
}

/// The store as call.lua has it.
#[derive(Default)]
struct Store {
    rolling: bool,
    /// Amounts by tick; of a fixed window, all in one.
    slots: Vec<(u64, i64)>,
    window_end: u64,
    /// The amount of a lease and its end.
    leases: HashMap<(usize, u64), (i64, u64)>,
}

impl Store {
    fn used(&self) -> i64 {
        self.slots.iter().map(|(_, amount)| amount).sum()
    }

    fn add(&mut self, amount: i64, tick: u64) {
        match self.slots.last_mut() {
            Some(newest) if newest.0 >= tick => newest.1 += amount,
            _ => self.slots.push((tick, amount)),
        }
    }

    /// Returns the amount granted, and the lease.
    fn call(&mut self, server: usize, trip: &Trip, amount: i64, now: u64) -> (i64, Given) {
        let tick = now / TICK;
        if self.rolling {
            self.slots.retain(|(at, _)| at + TICKS > tick);
        } else if now >= self.window_end {
            self.slots.clear();
            self.leases.clear();
            self.window_end = now + TICK * TICKS;
        }
        for returned in &trip.returned {
            if let Some((amount, _)) = self.leases.remove(&(server, returned.id)) {
                self.add(returned.used.min(amount), tick);
            }
        }
        let lost: Vec<_> =
            self.leases.iter().filter(|(_, (_, ends))| now > ends + GRACE).map(|(id, _)| *id).collect();
        for id in lost {
            let (amount, ends) = self.leases.remove(&id).unwrap();
            if !self.rolling || ends / TICK + TICKS > tick {
                self.add(amount, ends / TICK);
            }
        }
        let leased: i64 = self.leases.values().map(|(amount, _)| amount).sum();
        let granted = if amount <= MAX - self.used() - leased { amount } else { 0 };
        self.add(granted, tick);
        let free = MAX - self.used() - leased;
        let life = (TICK * TICKS / 2 * free as u64 / MAX as u64).max(100);
        let life = if self.rolling { life } else { life.min(self.window_end - now) };
        let wanted = if granted > 0 { trip.wanted } else { 0 };
        let lease = wanted.min(MAX / 100).min(free / 6);
        if lease > 0 {
            self.leases.insert((server, trip.id), (lease, now + life));
        }
        let window_end = (!self.rolling).then(|| Duration::from_millis(self.window_end - now));
        let life = Duration::from_millis(life);
        (
            granted,
            Given { amount: lease, life, window_end, remaining: free - lease, reset_after: Duration::ZERO },
        )
    }
}

/// A trip on its way: the server, the amount, when it began by the clock of the server, and the store's answer.
struct OnItsWay {
    server: usize,
    trip: Trip,
    amount: i64,
    begin: Duration,
    answer: Option<(i64, Given)>,
}

/// Runs events, and returns when which amount was granted, and the ends of fixed windows.
fn run(events: Vec<Event>, rolling: bool) -> (Vec<(u64, i64)>, Vec<u64>) {
    let window = if rolling {
        Window::Rolling(Span { tick: Duration::from_millis(TICK), ticks: TICKS })
    } else {
        Window::Fixed(Duration::from_millis(TICK * TICKS))
    };
    let leased = Leased { counter: SharedFingerprint(1), window, max: MAX };
    let mut store = Store { rolling, ..Store::default() };
    let mut servers = [0, 1, 2].map(|server: u64| Leases::new(server << 32));
    // Clocks of servers are far apart.
    let local = |server: usize, now: u64| Duration::from_millis(now + [0, 10_000, 7_777_777][server]);
    let mut trips: Vec<OnItsWay> = Vec::new();
    let (mut now, mut granted, mut ends) = (1_000_000_u64, Vec::new(), Vec::new());
    for event in events {
        match event {
            Event::Pass(millis) => now += millis,
            Event::Request(server, amount) => {
                match servers[server].request(leased, "q", amount, local(server, now)) {
                    Ok(_) => granted.push((now, amount)),
                    Err(trip) => {
                        trips.push(OnItsWay {
                            server,
                            trip,
                            amount,
                            begin: local(server, now),
                            answer: None,
                        });
                    }
                }
            }
            Event::Run(at) => {
                let waiting = trips.iter_mut().filter(|trip| trip.answer.is_none()).nth(at);
                let Some(trip) = waiting else { continue };
                trip.answer = Some(store.call(trip.server, &trip.trip, trip.amount, now));
                // The caller waits; what the store grants counts now, whether the answer arrives or not.
                granted.push((now, trip.answer.unwrap().0));
                ends.push(store.window_end);
            }
            Event::Answer(at, arrives) => {
                let ran = trips.iter().enumerate().filter(|(_, trip)| trip.answer.is_some()).nth(at);
                let Some((index, _)) = ran else { continue };
                let OnItsWay { server, trip, begin, answer, .. } = trips.remove(index);
                match answer.filter(|_| arrives) {
                    Some((_, given)) => servers[server].taken(leased.counter, &trip, given, begin),
                    None => servers[server].failed(leased.counter, trip.id, true),
                }
            }
            Event::Sweep(server) => {
                for (_, returned) in servers[server].sweep(local(server, now)) {
                    let trip = Trip { returned, wanted: 0, id: 0 };
                    trips.push(OnItsWay { server, trip, amount: 0, begin: Duration::ZERO, answer: None });
                }
            }
            Event::Close(server) => {
                for (_, returned) in servers[server].close() {
                    let trip = Trip { returned, wanted: 0, id: 0 };
                    trips.push(OnItsWay { server, trip, amount: 0, begin: Duration::ZERO, answer: None });
                }
            }
            Event::Kill(server) => {
                // Another process has other ids.
                servers[server] = Leases::new(servers[server].last_id + 1_000_000);
                trips.retain(|trip| trip.server != server);
            }
        }
    }
    ends.dedup();
    (granted, ends)
}

proptest! {
    #[test]
    fn no_rolling_window_has_more_than_the_limit_whatever_is_lost(events in events()) {
        let (granted, _) = run(events, true);
        for (end, _) in &granted {
            let tick = end / TICK;
            let within = granted.iter().filter(|(at, _)| at / TICK <= tick && at / TICK + TICKS > tick);
            let sum: i64 = within.map(|(_, amount)| amount).sum();
            prop_assert!(sum <= MAX, "{sum} until {end}: {granted:?}");
        }
    }

    #[test]
    fn no_fixed_window_has_more_than_the_limit_whatever_is_lost(events in events()) {
        let (granted, ends) = run(events, false);
        for end in ends {
            let within = granted.iter().filter(|(at, _)| *at < end && at + TICK * TICKS >= end);
            let sum: i64 = within.map(|(_, amount)| amount).sum();
            prop_assert!(sum <= MAX, "{sum} until {end}: {granted:?}");
        }
    }
}

fn given(amount: i64) -> Given {
    let life = Duration::from_secs(10);
    Given { amount, life, window_end: None, remaining: 100, reset_after: Duration::ZERO }
}

const LEASED: Leased =
    Leased { counter: SharedFingerprint(1), window: Window::Fixed(Duration::from_secs(60)), max: MAX };

fn trip(served: Served) -> Trip {
    served.unwrap_err()
}

#[test]
fn the_size_of_leases_follows_demand() {
    let mut leases = Leases::new(0);
    let second = Duration::from_secs;
    let mut wanted = Vec::new();
    for _ in 0..4 {
        let trip = trip(leases.request(LEASED, "q", 1, second(0)));
        wanted.push(trip.wanted);
        leases.taken(LEASED.counter, &trip, given(trip.wanted), second(0));
        for _ in 0..trip.wanted {
            assert!(leases.request(LEASED, "q", 1, second(1)).is_ok());
        }
    }
    assert_eq!(wanted, [1, 2, 4, 8]);
    let last = trip(leases.request(LEASED, "q", 1, second(2)));
    leases.taken(LEASED.counter, &last, given(last.wanted), second(2));
    leases.request(LEASED, "q", 3, second(3)).unwrap();
    // Over, with 3 of 16 used.
    let next = trip(leases.request(LEASED, "q", 1, second(12)));
    assert_eq!((last.wanted, next.returned[0].used, next.wanted), (16, 3, 6));
}

#[test]
fn one_trip_at_a_time_takes_a_lease() {
    let mut leases = Leases::new(0);
    let first = trip(leases.request(LEASED, "q", 1, Duration::ZERO));
    assert_eq!(trip(leases.request(LEASED, "q", 1, Duration::ZERO)).wanted, 0);
    leases.failed(LEASED.counter, first.id, true);
    let next = trip(leases.request(LEASED, "q", 1, Duration::ZERO));
    // The store may have given it.
    assert_eq!(next.returned, [Return { id: first.id, used: 0 }]);
    assert!(next.wanted > 0);
    leases.taken(LEASED.counter, &next, given(1), Duration::ZERO);
    assert_eq!(leases.close(), [(LEASED, vec![Return { id: next.id, used: 0 }])]);
}

#[test]
fn idle_leases_are_returned_and_counters_without_requests_forgotten() {
    let mut leases = Leases::new(0);
    let first = trip(leases.request(LEASED, "q", 1, Duration::ZERO));
    leases.taken(LEASED.counter, &first, given(5), Duration::ZERO);
    leases.request(LEASED, "q", 2, Duration::ZERO).unwrap();
    let held = Held { left: 3, used: 2, store: Some((100, Duration::from_secs(2))) };
    assert_eq!(leases.sweep(Duration::ZERO), Vec::new());
    assert_eq!(leases.held(Duration::from_secs(2)), [("q".into(), held)].into());
    let ended = vec![Return { id: first.id, used: 2 }];
    // Again and again, until the store has it.
    assert_eq!(leases.sweep(Duration::ZERO), [(LEASED, ended.clone())]);
    assert_eq!(leases.sweep(Duration::ZERO), [(LEASED, ended.clone())]);
    leases.returned(LEASED.counter, &ended);
    assert_eq!(leases.sweep(Duration::ZERO), []);
    assert_eq!((leases.counters.len(), leases.held(Duration::ZERO).len()), (0, 0));
}

#[test]
fn another_limit_of_the_same_counter_uses_no_lease() {
    let mut leases = Leases::new(0);
    let first = trip(leases.request(LEASED, "q", 1, Duration::ZERO));
    leases.taken(LEASED.counter, &first, given(5), Duration::ZERO);
    let lower = Leased { max: 500, ..LEASED };
    assert_eq!(trip(leases.request(lower, "q", 1, Duration::ZERO)), Trip::default());
    assert!(leases.request(LEASED, "q", 5, Duration::ZERO).is_ok());
}
