//! The last decisions, in memory while a client reads them.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;

/// Maximum size of the decisions in bytes.
const MAX_BYTES: usize = 1 << 20;

/// The size in bytes of a decision without its line and its id.
const OVERHEAD: usize = 128;

/// Maximum number of calls in a second that are recorded.
const CALLS_PER_SECOND: u32 = 100;

/// How long decisions are recorded after they were last read.
const WATCHED: Duration = Duration::from_secs(30);

/// The last decisions. They are recorded from the first read until 30 seconds after the last read, and then dropped. At most 100 calls
/// in a second are recorded; others are counted.
#[derive(Debug)]
pub struct RecentDecisions {
    created: Instant,
    /// When recording ends, in milliseconds since `created`; 0 if no client reads them.
    watched_until: AtomicU64,
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    decisions: VecDeque<Decision>,
    bytes: usize,
    /// Number of decisions ever added.
    added: u64,
    /// Number of decisions of each id.
    ids: HashMap<Arc<str>, usize>,
    second: u64,
    calls: u32,
    /// Calls that were not recorded.
    skipped: u64,
}

#[derive(Debug)]
struct Decision {
    id: Arc<str>,
    line: Arc<[u8]>,
}

impl Decision {
    fn size(&self) -> usize {
        OVERHEAD + self.id.len() + self.line.len()
    }
}

impl RecentDecisions {
    pub(super) fn new() -> Self {
        Self { created: Instant::now(), watched_until: AtomicU64::new(0), ring: Mutex::default() }
    }

    /// Returns the decisions after number `after` as JSON, and records further ones for 30 seconds: `last` is the number with which to
    /// continue, `missed` the number of decisions dropped since `after`, `skipped` the number of calls ever that were not recorded, and
    /// `decisions` the lines of the log, the oldest first.
    pub fn read(&self, after: u64) -> String {
        self.read_at(after, self.created.elapsed())
    }

    fn read_at(&self, after: u64, now: Duration) -> String {
        self.watched_until.store(millis(now + WATCHED), Relaxed);
        let ring = self.ring.lock();
        let Ring { decisions, added, skipped, .. } = &*ring;
        let (added, skipped) = (*added, *skipped);
        let first = added - decisions.len() as u64;
        // A number of another process is too large.
        let after = if after > added { 0 } else { after };
        let missed = if after == 0 { 0 } else { first.saturating_sub(after) };
        let known = usize::try_from(after.saturating_sub(first)).unwrap_or(usize::MAX);
        let lines: Vec<_> = decisions.iter().skip(known).map(|decision| decision.line.clone()).collect();
        // Calls do not wait for the text.
        drop(ring);
        let lines: Vec<_> = lines.iter().map(|line| String::from_utf8_lossy(line)).collect();
        let decisions = lines.join(",");
        let counts = format!(r#""last":{added},"missed":{missed},"skipped":{skipped}"#);
        format!("{{{counts},\"decisions\":[{decisions}]}}\n")
    }

    /// Returns whether a client reads them, or did recently.
    pub(super) fn is_watched(&self) -> bool {
        self.watched_until.load(Relaxed) != 0
    }

    /// Returns whether a call is recorded. A call that continues a recorded decision always is.
    pub(super) fn admit(&self, id: Option<&str>) -> bool {
        // Mostly, no client reads them.
        self.is_watched() && self.admit_at(id, self.created.elapsed())
    }

    fn admit_at(&self, id: Option<&str>, now: Duration) -> bool {
        let watched_until = self.watched_until.load(Relaxed);
        let mut ring = self.ring.lock();
        if watched_until < millis(now) {
            // Unless it was read meanwhile.
            if self.watched_until.compare_exchange(watched_until, 0, Relaxed, Relaxed).is_ok() {
                let (added, skipped) = (ring.added, ring.skipped);
                *ring = Ring { added, skipped, ..Ring::default() };
            }
            return false;
        }
        if id.is_some_and(|id| ring.ids.contains_key(id)) {
            return true;
        }
        if ring.second != now.as_secs() {
            (ring.second, ring.calls) = (now.as_secs(), 0);
        }
        if ring.calls == CALLS_PER_SECOND {
            ring.skipped += 1;
            return false;
        }
        ring.calls += 1;
        true
    }

    /// Adds a line, which replaces the oldest lines.
    pub(super) fn add(&self, id: &str, line: &[u8]) {
        self.ring.lock().add(id, line);
    }
}

impl Ring {
    fn add(&mut self, id: &str, line: &[u8]) {
        let id = self.ids.get_key_value(id).map_or_else(|| id.into(), |(id, _)| id.clone());
        *self.ids.entry(id.clone()).or_default() += 1;
        let decision = Decision { id, line: line.into() };
        self.bytes += decision.size();
        self.added += 1;
        self.decisions.push_back(decision);
        while self.bytes > MAX_BYTES
            && let Some(oldest) = self.decisions.pop_front()
        {
            self.bytes -= oldest.size();
            if let Some(count) = self.ids.get_mut(&oldest.id) {
                *count -= 1;
                if *count == 0 {
                    self.ids.remove(&oldest.id);
                }
            }
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::Value as Json;

    use super::*;

    fn read(recent: &RecentDecisions, after: u64, now: Duration) -> Json {
        serde_json::from_str(&recent.read_at(after, now)).unwrap()
    }

    fn ids(read: &Json) -> Vec<&str> {
        read["decisions"].as_array().unwrap().iter().map(|line| line["id"].as_str().unwrap()).collect()
    }

    fn add(recent: &RecentDecisions, id: &str) {
        recent.add(id, format!(r#"{{"id":"{id}"}}"#).as_bytes());
    }

    const NOW: Duration = Duration::from_secs(1000);

    #[test]
    fn a_reader_continues_where_it_has_ended() {
        let recent = RecentDecisions::new();
        add(&recent, "a");
        let first = read(&recent, 0, NOW);
        assert_eq!(ids(&first), ["a"]);
        add(&recent, "b");
        let next = read(&recent, first["last"].as_u64().unwrap(), NOW);
        assert_eq!((ids(&next), &next["missed"]), (vec!["b"], &0.into()));
        assert!(ids(&read(&recent, next["last"].as_u64().unwrap(), NOW)).is_empty());
        assert_eq!(ids(&read(&recent, 1000, NOW)), ["a", "b"], "a number of another process");
    }

    #[test]
    fn nothing_is_recorded_until_it_is_read_nor_thirty_seconds_after_and_then_it_is_dropped() {
        let recent = RecentDecisions::new();
        assert!(!recent.admit(None));
        read(&recent, 0, NOW);
        assert!(recent.admit_at(None, NOW + WATCHED));
        add(&recent, "a");
        assert!(!recent.admit_at(None, NOW + WATCHED + Duration::from_secs(1)));
        assert!(!recent.admit(None));
        assert!(ids(&read(&recent, 0, NOW)).is_empty());
    }

    #[test]
    fn the_oldest_decisions_are_dropped_beyond_a_mebibyte_and_counted_as_missed() {
        let recent = RecentDecisions::new();
        add(&recent, "first");
        let last = read(&recent, 0, NOW)["last"].as_u64().unwrap();
        let line = format!(r#"{{"id":"{}"}}"#, "x".repeat(10_000));
        let count = 2 * MAX_BYTES / line.len();
        (0..count).for_each(|_| recent.add("x", line.as_bytes()));
        let read = read(&recent, last, NOW);
        let shown = read["decisions"].as_array().unwrap().len();
        assert!(read.to_string().len() <= MAX_BYTES && shown > 90, "{shown}");
        assert_eq!(read["missed"].as_u64().unwrap() as usize, count - shown);
        let ring = recent.ring.lock();
        assert_eq!(ring.ids.keys().map(|id| &**id).collect::<Vec<_>>(), ["x"]);
        assert_eq!(ring.bytes, ring.decisions.iter().map(Decision::size).sum::<usize>());
    }

    #[test]
    fn beyond_a_hundred_calls_in_a_second_only_those_of_recorded_decisions_are_recorded() {
        let recent = RecentDecisions::new();
        read(&recent, 0, NOW);
        let admitted = (0..150).filter(|_| recent.admit_at(None, NOW)).count();
        assert_eq!(admitted, 100);
        add(&recent, "a");
        assert!(recent.admit_at(Some("a"), NOW) && !recent.admit_at(Some("b"), NOW));
        assert_eq!(read(&recent, 0, NOW)["skipped"], 51);
        assert!(recent.admit_at(Some("b"), NOW + Duration::from_secs(1)));
    }
}
