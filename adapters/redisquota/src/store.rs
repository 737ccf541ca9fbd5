//! The counters in Redis.

use std::{sync::Arc, time::Duration};

use mixer_adapter_quota::SharedFingerprint;
use mixer_adapter_redis::{
    Client, ClientError, millis,
    redis::{Script, ScriptInvocation},
};

use super::{
    lease::{Leased, Trip},
    share::Report,
};

const CALL: &str = include_str!("call.lua");

/// The largest amount that scripts count exactly. Larger amounts and limits are reduced to it.
const MOST: i64 = 1 << 52;

/// One call of a counter.
#[derive(Clone, Debug)]
pub(super) struct CounterCall {
    pub(super) leased: Leased,
    pub(super) amount: i64,
    pub(super) best_effort: bool,
    pub(super) past_limit: bool,
    /// How long a grant is valid; a fixed window has its own.
    pub(super) valid: Duration,
    /// The fingerprint of the call, and how long a repeated one gets the same answer.
    pub(super) repeatable: Option<(SharedFingerprint, Duration)>,
    /// The leases that the trip returns and takes.
    pub(super) trip: Trip,
}

impl CounterCall {
    /// Creates the call of a trip without an amount.
    pub(super) fn of_trip(leased: Leased, trip: Trip) -> Self {
        Self {
            leased,
            amount: 0,
            best_effort: false,
            past_limit: false,
            valid: Duration::ZERO,
            repeatable: None,
            trip,
        }
    }

    /// Creates the call that counts an amount whether it is within the limit or not, and once, however often it is sent.
    pub(super) fn of_report(leased: Leased, report: Report) -> Self {
        Self {
            amount: report.amount,
            past_limit: true,
            repeatable: Some((SharedFingerprint(report.id.into()), leased.window.length())),
            ..Self::of_trip(leased, Trip::default())
        }
    }
}

/// The state of a counter after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) granted: i64,
    pub(super) valid: Duration,
    /// The amount in use, leases included.
    pub(super) used: i64,
    /// How long until the refused amount is free, or else everything.
    pub(super) reset_after: Duration,
    /// Whether this is the answer of an earlier call.
    pub(super) is_repeated: bool,
    /// The amount of the lease, and its life.
    pub(super) lease: (i64, Duration),
    /// The amount of all leases.
    pub(super) leased: i64,
}

/// The answer of call.lua.
type CallReply = (i64, u64, i64, u64, bool, i64, u64, i64);

/// The counters in one Redis.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) client: Arc<Client>,
    call: Script,
}

impl Store {
    /// Creates the counters of a client. Scripts read the time with `clock`.
    pub(super) fn new(client: Arc<Client>, clock: &str) -> Self {
        Self { client, call: Script::new(&format!("{clock}{CALL}")) }
    }

    /// Makes a call, which takes up to `limit`.
    ///
    /// # Errors
    /// Redis is disconnected, refuses the call, or does not answer in time. It may have counted an unanswered call.
    pub(super) async fn call(&self, call: &CounterCall, limit: Duration) -> Result<Counted, ClientError> {
        let invocation = self.invocation(call);
        let (granted, valid, used, reset_after, is_repeated, lease, life, leased): CallReply =
            self.client.invoke(&invocation, limit).await?;
        Ok(Counted {
            granted,
            valid: Duration::from_millis(valid),
            used,
            reset_after: Duration::from_millis(reset_after),
            is_repeated,
            lease: (lease, Duration::from_millis(life)),
            leased,
        })
    }

    /// Returns the id of a lease in Redis, which has the leases of all servers.
    fn lease_id(&self, id: u64) -> String {
        format!("{}-{id}", self.client.id())
    }

    fn invocation(&self, call: &CounterCall) -> ScriptInvocation<'_> {
        // Braces: all keys of a call are in one slot of a cluster.
        let counter = format!("{}:{{{:032x}}}", self.client.key_prefix(), call.leased.counter.0);
        let (answer, stored) = call.repeatable.map_or((0, Duration::ZERO), |(id, stored)| (id.0, stored));
        let (slots, leases) = (format!("{counter}:slots"), format!("{counter}:leases"));
        let answer = format!("{counter}:{answer:032x}");
        let mut invocation = self.call.prepare_invoke();
        invocation
            .key(counter)
            .key(slots)
            .key(leases)
            .key(answer)
            .arg(call.leased.window.tick())
            .arg(call.leased.window.ticks())
            .arg(call.leased.max.min(MOST))
            .arg(call.amount.clamp(-MOST, MOST))
            .arg(u8::from(call.best_effort))
            .arg(u8::from(call.past_limit))
            .arg(millis(call.valid))
            .arg(millis(stored))
            .arg(self.lease_id(call.trip.id))
            .arg(call.trip.wanted)
            .arg(self.client.servers().unwrap_or(1));
        for returned in &call.trip.returned {
            invocation.arg(self.lease_id(returned.id)).arg(returned.used);
        }
        invocation
    }
}
