//! The time of sessions and idle handlers.

use std::{sync::Weak, time::Duration};

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use mixer_adapter_host::{Host, session::STEPS_TO_EXPIRE};

/// How often idle handlers are closed.
const SWEEP: Duration = Duration::from_secs(15);

/// How often sessions are exchanged with other servers.
const EXCHANGE: Duration = Duration::from_secs(2);

/// Closes unused sessions and idle handlers for as long as the host exists.
pub(super) async fn keep_time(host: Weak<Host>, session_idle: Option<Duration>) {
    let step = session_idle.map_or(SWEEP, |idle| (idle / STEPS_TO_EXPIRE).max(Duration::from_millis(1)));
    let are_shared = host.upgrade().is_some_and(|host| host.reaches_session_store().is_some());
    let (mut steps, mut sweeps, mut exchanges) = (ticks(step), ticks(SWEEP), ticks(EXCHANGE));
    loop {
        let due = tokio::select! {
            _ = steps.tick(), if session_idle.is_some() => Due::Step,
            _ = sweeps.tick() => Due::Sweep,
            _ = exchanges.tick(), if are_shared => Due::Exchange,
        };
        let Some(host) = host.upgrade() else { return };
        match due {
            Due::Step => host.expire_idle(),
            Due::Sweep => host.handlers().sweep(),
            Due::Exchange => host.synchronize_sessions().await,
        }
    }
}

enum Due {
    Step,
    Sweep,
    Exchange,
}

/// Ticks from one period after now.
fn ticks(period: Duration) -> Interval {
    let mut ticks = interval_at(Instant::now() + period, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
