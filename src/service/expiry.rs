//! The time of sessions and idle handlers.

use std::{sync::Weak, time::Duration};

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use mixer_adapter_host::{Host, session::STEPS_TO_EXPIRE};

/// How often idle handlers are closed.
const SWEEP: Duration = Duration::from_secs(15);

/// How often sessions are exchanged with other servers.
const EXCHANGE: Duration = Duration::from_secs(2);

/// Closes unused sessions and idle handlers, and exchanges shared sessions, for as long as the host exists.
pub(super) async fn keep_time(host: Weak<Host>, session_idle: Option<Duration>) {
    // A store that answers late does not delay the end of sessions.
    tokio::join!(expire(&host, session_idle), exchange(&host));
}

async fn expire(host: &Weak<Host>, session_idle: Option<Duration>) {
    let step = session_idle.map_or(SWEEP, |idle| (idle / STEPS_TO_EXPIRE).max(Duration::from_millis(1)));
    let (mut steps, mut sweeps) = (ticks(step), ticks(SWEEP));
    loop {
        let is_step = tokio::select! {
            _ = steps.tick(), if session_idle.is_some() => true,
            _ = sweeps.tick() => false,
        };
        let Some(host) = host.upgrade() else { return };
        if is_step {
            host.expire_idle();
        } else {
            host.handlers().sweep();
        }
    }
}

async fn exchange(host: &Weak<Host>) {
    let mut exchanges = ticks(EXCHANGE);
    while host.upgrade().is_some_and(|host| host.reaches_session_store().is_some()) {
        exchanges.tick().await;
        let Some(host) = host.upgrade() else { return };
        host.synchronize_sessions().await;
    }
}

/// Ticks from one period after now.
fn ticks(period: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
