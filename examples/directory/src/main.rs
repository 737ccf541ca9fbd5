//! Asks an HTTP service whether a user may pass. `cargo run -p directory -- serve`
use mixer_adapter::adapter::{Faults, HttpError, Secret, Settings};
use mixer_adapter::template::{ListEntry, listentry::InstanceMsg};
use mixer_adapter::{Adapter, AdapterError, Call, Check, Code, Context, Handle, metrics};
use std::{collections::HashMap, sync::Arc, time::Duration, time::Instant};
use tokio::sync::Mutex;
mixer_adapter::include_proto!("directory"); // Params, from config.proto
const SECOND: Duration = Duration::from_secs(1);
/// The clock of the program.
struct Clock(Box<dyn Fn() -> Instant + Send + Sync>);
struct Service {
    url: String,
    token_file: String,
    ttl: Duration,
}
impl Settings for Service {
    type Params = Params;
    fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
        let ttl = faults.duration("ttl", params.ttl).range(SECOND..=3600 * SECOND).or(60 * SECOND);
        let token_file = faults.text("token_file", params.token_file).required();
        let (token_file, url) = token_file.zip(faults.url("url", &params.url).required())?;
        faults.secret_file("token_file", &token_file, &url);
        Some(Self { url: params.url, token_file, ttl })
    }
}
struct Directory(Arc<Lookup>);
struct Lookup {
    service: Service,
    token: Secret,
    answers: metrics::Series<metrics::Counter, 1>,
    context: Context<Clock>,
    users: Mutex<HashMap<String, (bool, Instant)>>,
}
impl Adapter<Clock> for Directory {
    const NAME: &str = "directory";
    const DESCRIPTION: &str = "Asks an HTTP service whether a user may pass.";
    type Config = Service;
    type Templates = (ListEntry,);
    async fn open(service: Service, context: Context<Clock>) -> Result<Self, AdapterError> {
        let token = context.secret("token_file", &service.token_file).await?;
        let answers = context.metrics().counter("answers", "Answers of the service", ["outcome"]);
        let lookup = Arc::new(Lookup { service, token, answers, context, users: Mutex::default() });
        lookup.context.spawn(lookup.clone().refresh());
        Ok(Self(lookup))
    }
}
impl Handle<ListEntry> for Directory {
    async fn handle(&self, call: Call<InstanceMsg>) -> Result<Check, AdapterError> {
        let user = call.value.as_ref().map(ToString::to_string).unwrap_or_default();
        let allowed = match self.0.cached(&user).await {
            Some(allowed) => allowed,
            None => self.0.ask(&user, call.time_left(5 * SECOND)).await?,
        };
        Ok(if allowed { Check::allow() } else { Check::deny(Code::PermissionDenied, "not in the directory") })
    }
}
impl Lookup {
    fn now(&self) -> Instant {
        (self.context.state().0)()
    }
    async fn cached(&self, user: &str) -> Option<bool> {
        let (allowed, asked) = *self.users.lock().await.get(user)?;
        (self.now() - asked < self.service.ttl).then_some(allowed)
    }
    async fn ask(&self, user: &str, limit: Duration) -> Result<bool, HttpError> {
        let request = self.context.http().post(&self.service.url).bearer(&self.token).timeout(limit);
        let answer = request.json(&HashMap::from([("user", user)])).send().await.and_then(|it| it.success());
        self.answers.with([if answer.is_ok() { "answered" } else { "failed" }]).inc();
        let allowed = answer?.json::<HashMap<String, bool>>()?.get("allowed").is_some_and(|allowed| *allowed);
        let mut users = self.users.lock().await;
        if users.len() >= 10_000 {
            users.clear();
        }
        users.insert(user.to_owned(), (allowed, self.now()));
        Ok(allowed)
    }
    async fn refresh(self: Arc<Self>) {
        loop {
            tokio::time::sleep(self.service.ttl / 2).await;
            let users: Vec<String> = self.users.lock().await.keys().cloned().collect();
            for user in users {
                let asked = self.ask(&user, 5 * SECOND).await;
                let _ = asked.inspect_err(|error| tracing::warn!(user, %error, "refreshing a user failed"));
            }
        }
    }
}
mixer_adapter::main!(Directory; state = Clock(Box::new(Instant::now)));
#[cfg(test)]
mod tests;
