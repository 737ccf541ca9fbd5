//! A counter of one quota and one combination of dimensions.

use std::{collections::VecDeque, time::Duration};

/// The resolution of windows (docs/behaviour/adapters.md#windows-of-memquota).
const TICK: Duration = Duration::from_millis(100);

/// The maximum number of ticks of a window. A window of more than an hour has longer ticks, which limits its memory.
const MOST_TICKS: u128 = 36_000;

/// The length of a rolling window and of its ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The length of a tick.
    pub tick: Duration,
    /// The number of ticks.
    pub ticks: u64,
}

impl Span {
    /// Creates a window of whole seconds, at least as long as `valid`.
    pub fn of(valid: Duration) -> Self {
        let seconds = u128::from(valid.as_secs()) + u128::from(valid.subsec_nanos() > 0);
        let ticks = seconds * 10;
        let longer = ticks.div_ceil(MOST_TICKS).max(1);
        // Both fit: the number is at most MOST_TICKS, and limits.rs limits the length.
        Self {
            tick: TICK * u32::try_from(longer).unwrap_or(u32::MAX),
            ticks: u64::try_from(ticks.div_ceil(longer)).unwrap_or(u64::MAX),
        }
    }

    fn tick_at(&self, now: Duration) -> u64 {
        u64::try_from(now.as_nanos() / self.tick.as_nanos().max(1)).unwrap_or(u64::MAX)
    }
}

/// The amount in use of one quota by one combination of dimensions.
///
/// With a span it is a rolling window, which frees an amount when it has moved past the tick of the grant. Without, an amount
/// is in use until it is released.
#[derive(Debug)]
pub struct Counter {
    span: Option<Span>,
    in_use: i64,
    /// The sum of the amounts of former slots. It wraps around, like the sums of slots: only differences count.
    freed: i64,
    /// The ticks in which an amount was added, oldest first; empty without a span.
    slots: VecDeque<Slot>,
}

/// The memory of a slot.
pub(crate) const SLOT_BYTES: usize = size_of::<Slot>();

#[derive(Debug)]
struct Slot {
    tick: u64,
    /// The sum of the amounts of all slots up to this one.
    sum: i64,
}

impl Counter {
    /// Creates a counter with nothing in use.
    pub fn new(span: Option<Span>) -> Self {
        Self { span, in_use: 0, freed: 0, slots: VecDeque::new() }
    }

    /// Returns the amount in use.
    pub fn in_use(&mut self, now: Duration) -> i64 {
        if let Some(span) = self.span {
            let tick = span.tick_at(now);
            while let Some(oldest) =
                self.slots.front().filter(|slot| slot.tick.saturating_add(span.ticks) <= tick)
            {
                self.in_use -= oldest.sum.wrapping_sub(self.freed);
                self.freed = oldest.sum;
                self.slots.pop_front();
            }
        }
        self.in_use
    }

    /// Adds an amount, which the caller has checked to be available. The sum must not exceed `i64::MAX`.
    pub fn add(&mut self, amount: i64, now: Duration) {
        self.in_use += amount;
        let Some(span) = self.span else { return };
        let (tick, sum) = (span.tick_at(now), self.freed.wrapping_add(self.in_use));
        match self.slots.back_mut() {
            // Another thread may have read a later time and added first.
            Some(newest) if newest.tick >= tick => newest.sum = sum,
            _ => self.slots.push_back(Slot { tick, sum }),
        }
    }

    /// Returns the time until `amount` of the used amount is free; `None` without a span.
    pub(crate) fn free_after(&self, amount: i64, now: Duration) -> Option<Duration> {
        let span = self.span?;
        if amount <= 0 {
            return Some(Duration::ZERO);
        }
        let index = self.slots.partition_point(|slot| slot.sum.wrapping_sub(self.freed) < amount);
        let Some(slot) = self.slots.get(index).or(self.slots.back()) else { return Some(Duration::ZERO) };
        let end = u32::try_from(slot.tick.saturating_add(span.ticks)).unwrap_or(u32::MAX);
        Some(span.tick.saturating_mul(end).saturating_sub(now))
    }

    /// Releases up to `amount`, the newest first, and returns the amount released.
    pub fn release(&mut self, amount: u64, now: Duration) -> i64 {
        let released = i64::try_from(amount).unwrap_or(i64::MAX).min(self.in_use(now));
        self.in_use -= released;
        if self.span.is_some() && released > 0 {
            let remaining =
                self.slots.partition_point(|slot| slot.sum.wrapping_sub(self.freed) < self.in_use);
            self.slots.truncate(if self.in_use > 0 { remaining + 1 } else { 0 });
            if let Some(newest) = self.slots.back_mut() {
                newest.sum = self.freed.wrapping_add(self.in_use);
            }
        }
        released
    }

    /// Frees the memory of former slots.
    pub(crate) fn shrink(&mut self) {
        self.slots.shrink_to_fit();
    }

    /// Returns the memory used, in slots.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(ticks: u64) -> Counter {
        Counter::new(Some(Span { tick: TICK, ticks }))
    }

    fn at(tick: u32) -> Duration {
        TICK * tick
    }

    fn alloc(counter: &mut Counter, max: i64, amount: i64, now: Duration) -> bool {
        let fits = amount <= max - counter.in_use(now);
        if fits {
            counter.add(amount, now);
        }
        fits
    }

    /// rollingWindow_test.go, TestAlloc: (amount, tick, granted, available after), limit 5, three ticks.
    #[test]
    fn a_window_gives_back_what_it_moved_past() {
        let cases = [
            (6, 1, false, 5),
            (1, 1, true, 4),
            (2, 1, true, 2),
            (2, 1, true, 0),
            (1, 1, false, 0),
            (2, 1, false, 0),
            (1, 2, false, 0),
            (1, 3, false, 0),
            (1, 4, true, 4),
            (4, 5, true, 0),
            (1, 5, false, 0),
            (1, 7, true, 0),
            (1, 7, false, 0),
            (1, 8, true, 3),
            (5, 11, true, 0),
        ];
        let mut window = window(3);
        for (amount, tick, granted, available) in cases {
            assert_eq!(alloc(&mut window, 5, amount, at(tick)), granted, "{amount} at {tick}");
            assert_eq!(5 - window.in_use(at(tick)), available, "{amount} at {tick}");
        }
    }

    /// rollingWindow_test.go, TestRelease: (amount, tick; to release, tick; released, available after).
    #[test]
    fn a_release_gives_back_what_is_in_use_newest_first() {
        let cases = [
            (4, 0, 4, 0, 4, 5),
            (4, 0, 4, 1, 4, 5),
            (4, 0, 4, 4, 0, 5),
            (2, 10, 0, 10, 0, 3),
            (2, 11, 0, 11, 0, 1),
            (0, 13, 4, 13, 2, 5),
            (5, 13, 5, 13, 5, 5),
        ];
        let mut window = window(3);
        for (amount, tick, release, release_tick, released, available) in cases {
            assert!(alloc(&mut window, 5, amount, at(tick)), "{amount} at {tick}");
            assert_eq!(window.release(release, at(release_tick)), released, "{release} at {release_tick}");
            assert_eq!(5 - window.in_use(at(release_tick)), available, "{release} at {release_tick}");
        }
    }

    #[test]
    fn without_a_span_only_a_release_gives_back() {
        let mut cell = Counter::new(None);
        cell.add(7, at(0));
        assert_eq!(cell.in_use(at(u32::MAX)), 7);
        assert_eq!(cell.release(5, at(1)), 5);
        assert_eq!(cell.release(5, at(1)), 2);
        assert_eq!(cell.in_use(at(1)), 0);
    }

    #[test]
    fn a_window_is_whole_seconds_long_in_at_most_36000_ticks() {
        let span = |millis| Span::of(Duration::from_millis(millis));
        assert_eq!(span(1), Span { tick: TICK, ticks: 10 });
        assert_eq!(span(60_000), Span { tick: TICK, ticks: 600 });
        assert_eq!(span(3_600_000), Span { tick: TICK, ticks: 36_000 });
        assert_eq!(span(86_400_000), Span { tick: TICK * 24, ticks: 36_000 });
    }

    #[test]
    fn a_tick_takes_one_slot_and_a_clock_read_late_counts_with_the_newest() {
        let mut window = window(3);
        for tick in [5, 5, 4] {
            window.add(1, at(tick));
        }
        assert_eq!(window.slots(), 1);
        assert_eq!(window.in_use(at(7)), 3);
        assert_eq!(window.in_use(at(8)), 0);
    }

    #[test]
    fn the_time_until_an_amount_is_free_is_that_of_the_grant_in_its_way() {
        let mut window = window(100);
        for tick in 0..10 {
            window.add(2, at(tick));
        }
        assert_eq!(window.release(3, at(10)), 3);
        let free_after =
            |amount| window.free_after(amount, at(50)).map(|after| after.as_millis() / TICK.as_millis());
        // Ticks 0 to 7 have 2 each, and tick 8 has 1.
        for (amount, ticks) in [(0, 0), (1, 50), (2, 50), (3, 51), (16, 57), (17, 58), (i64::MAX, 58)] {
            assert_eq!(free_after(amount), Some(ticks), "{amount}");
        }
        assert_eq!(window.in_use(at(104)), 7, "ticks 0 to 4 have passed");
        assert_eq!(window.free_after(3, at(104)), Some(at(2)));
    }

    #[test]
    fn sums_of_any_size_leave_what_is_in_use_exact() {
        let mut window = window(3);
        for tick in [0, 10, 20, 30] {
            assert_eq!(window.in_use(at(tick)), 0);
            window.add(i64::MAX - 1, at(tick));
            window.add(1, at(tick + 1));
            assert_eq!(window.in_use(at(tick + 2)), i64::MAX);
            assert_eq!(window.free_after(i64::MAX, at(tick + 2)), Some(at(2)));
            assert_eq!(window.in_use(at(tick + 3)), 1);
        }
    }

    #[test]
    fn releasing_more_than_a_number_holds_releases_what_there_is() {
        let mut window = window(3);
        window.add(5, at(0));
        assert_eq!(window.release(u64::MAX, at(0)), 5);
        assert_eq!((window.in_use(at(0)), window.slots()), (0, 0));
    }
}
