use mixer_adapter::metrics::{Counter, Events, Gauge, Histogram, Series, exponential_buckets};
use mixer_adapter::template::{CheckNothing, checknothing};
use mixer_adapter::{Adapter, AdapterError, Call, Check, Context, Handle};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::Params;

const SECOND: Duration = Duration::from_secs(1);

struct Service {
    path: String,
    token_file: String,
    url: String,
}

#[derive(serde::Deserialize)]
struct User {
    groups: Vec<String>,
}

async fn services(
    context: &Context,
    settings: &Service,
    call: &Call<checknothing::InstanceMsg>,
) -> Result<User, AdapterError> {
    let list = context.read("path", &settings.path).await?;
    let token = context.secret("token_file", &settings.token_file).await?; // read again when it changes; `Debug` hides it
    let answer =
        context.http().get(&settings.url).bearer(&token).timeout(call.time_left(SECOND)).send().await?;
    let user: User = answer.success()?.json()?;
    Ok(user)
}

fn from_cache(ttl: Duration, asked: Instant) -> Check {
    let remaining = ttl.saturating_sub(asked.elapsed());
    let check = Check::allow().valid_for(remaining); // no_cache() at zero
    check
}

struct Measured {
    answers: Series<Counter, 1>, // one label
    queue: Series<Gauge, 0>,
    times: Series<Histogram, 0>,
    lost: Events,
}

fn measured(context: &Context) {
    let metrics = context.metrics();
    let answers = metrics.counter("answers", "Answers of the service", ["outcome"]);
    let queue = metrics.gauge("queue", "Entries that wait", []);
    let buckets = exponential_buckets(0.001, 2.0, 12);
    let times = metrics.histogram("answer_seconds", "Time until the service answers", [], buckets);

    answers.with(["found"]).inc();
    queue.with([]).set(3);
    times.with([]).observe(0.02);
}

struct Refreshed {
    interval: Duration,
}

impl Refreshed {
    async fn refresh(&self) {}
}

fn background(context: &Context, lookup: &Arc<Refreshed>) {
    let refreshed = lookup.clone();
    context.spawn(async move {
        loop {
            tokio::time::sleep(refreshed.interval).await;
            refreshed.refresh().await;
        }
    });
}

struct Queue;

impl Queue {
    async fn flush(self) {}
}

struct Blocking {
    queue: Queue,
}

impl Adapter for Blocking {
    const NAME: &str = "blocking";
    const DESCRIPTION: &str = "Computes for long.";
    const BLOCKING: bool = true;
    type Config = Params;
    type Templates = (CheckNothing,);

    async fn open(_: Params, _: Context) -> Result<Self, AdapterError> {
        Ok(Self { queue: Queue })
    }

    async fn close(self) {
        self.queue.flush().await;
    }
}

impl Handle<CheckNothing> for Blocking {
    async fn handle(&self, _: Call<checknothing::InstanceMsg>) -> Result<Check, AdapterError> {
        Ok(Check::allow())
    }
}
