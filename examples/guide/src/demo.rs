//! Asks a service whether a user may pass.

use std::time::Duration;

use mixer_adapter::adapter::{Faults, Settings};
use mixer_adapter::metrics::{Counter, Series};
use mixer_adapter::template::{Authorization, authorization::InstanceMsg};
use mixer_adapter::{Adapter, AdapterError, Call, Check, Code, Context, Handle};

// Params, from config.proto.
mixer_adapter::include_proto!("demo");

use params::OnError;

/// The settings of a handler.
pub struct Service {
    url: String,
    timeout: Duration,
    on_error: OnError,
}

impl Settings for Service {
    type Params = Params;

    fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
        let timeout = faults.duration("timeout", params.timeout);
        let timeout = timeout.range(MILLISECOND..=10_000 * MILLISECOND).or(500 * MILLISECOND);
        let on_error = params.on_error();
        faults.url("url", &params.url).required()?;
        Some(Self { url: params.url, timeout, on_error })
    }
}

const MILLISECOND: Duration = Duration::from_millis(1);

/// The answer of the service.
#[derive(serde::Deserialize)]
struct Answer {
    allowed: bool,
}

/// A handler: the adapter with one configuration. Its calls run concurrently.
pub struct Handler {
    service: Service,
    context: Context,
    answers: Series<Counter, 1>,
}

impl Adapter for Handler {
    const NAME: &str = "demo";
    const DESCRIPTION: &str = "Asks a service whether a user may pass.";
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    type Config = Service;
    type Templates = (Authorization,);

    async fn open(service: Service, context: Context) -> Result<Self, AdapterError> {
        let answers = context.metrics().counter("answers", "Answers of the service", ["outcome"]);
        Ok(Self { service, context, answers })
    }
}

impl Handle<Authorization> for Handler {
    async fn handle(&self, call: Call<InstanceMsg>) -> Result<Check, AdapterError> {
        let user = call.subject.as_ref().map_or("", |subject| subject.user.as_str());
        let answer = self.ask(user, call.time_left(self.service.timeout)).await;
        let (outcome, check) = match answer {
            Ok(Answer { allowed: true }) => ("allowed", Ok(Check::allow())),
            Ok(Answer { allowed: false }) => {
                ("denied", Ok(Check::deny(Code::PermissionDenied, "not a known user")))
            }
            Err(error) => match self.service.on_error {
                OnError::Allow if error.code() == Code::Unavailable => {
                    ("failed", Ok(Check::allow().no_cache()))
                }
                OnError::Allow | OnError::Fail => ("failed", Err(error)),
            },
        };
        self.answers.with([outcome]).inc();
        check
    }
}

impl Handler {
    /// Asks the service. It has no answer after `limit`.
    async fn ask(&self, user: &str, limit: Duration) -> Result<Answer, AdapterError> {
        let request = self.context.http().get(&self.service.url).query("name", user).timeout(limit);
        Ok(request.send().await?.success()?.json()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mixer_adapter::testing::{FakeMixer, FakeService};

    // The contract of adapters: unusual values, sessions, deadlines, panics.
    mixer_adapter::testing::compliance!(
        Handler,
        config(&format!("url: '{}'", users().url("/users"))),
        refuses("url", "timeout: 1s"),
        refuses("timeout", "{url: 'http://127.0.0.1:9', timeout: 1m}")
    );

    /// Starts a service that knows `anna & bob`.
    fn users() -> FakeService {
        FakeService::start(|request| match request.uri().query() {
            Some("name=anna%20%26%20bob") => (200, r#"{"allowed": true}"#),
            _ => (200, r#"{"allowed": false}"#),
        })
    }

    fn instance(user: &str) -> InstanceMsg {
        let mut instance = InstanceMsg::default();
        instance.subject.get_or_insert_default().user = user.to_owned();
        instance
    }

    #[tokio::test]
    async fn users_that_the_service_knows_pass() {
        let service = users();
        let config = format!("url: '{}'", service.url("/users"));
        let handler = FakeMixer::with::<Handler>().params(&*config);
        let known = handler.check::<Authorization>(instance("anna & bob")).await;
        known.expect_allowed().expect_valid(Duration::from_secs(5), 1000);
        let unknown = handler.check::<Authorization>(instance("mallory")).await;
        unknown.expect_denied(Code::PermissionDenied, "not a known user");
        assert_eq!(service.request_count(), 2);
    }

    #[tokio::test]
    async fn without_an_answer_a_request_fails_unless_the_configuration_allows_it() {
        let service = FakeService::start(|_| (503, ""));
        let url = service.url("/users");
        let handler = FakeMixer::with::<Handler>().params(&*format!("url: '{url}'"));
        let failed = handler.check::<Authorization>(instance("alice")).await;
        failed.expect_error(Code::Unavailable, "the answer is 503 Service Unavailable");
        let config = format!("{{url: '{url}', on_error: ALLOW}}");
        let handler = FakeMixer::with::<Handler>().params(&*config);
        handler.check::<Authorization>(instance("alice")).await.expect_allowed();
    }

    #[tokio::test]
    async fn a_service_that_rejects_the_question_allows_nothing() {
        let service = FakeService::start(|_| (404, ""));
        let config = format!("{{url: '{}', on_error: ALLOW}}", service.url("/users"));
        let handler = FakeMixer::with::<Handler>().params(&*config);
        let failed = handler.check::<Authorization>(instance("alice")).await;
        failed.expect_error(Code::Internal, "the answer is 404 Not Found");
    }
}
