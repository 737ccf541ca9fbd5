//! The rules of `docs/adapter-contract.md`, with the same order and names.

use std::{fmt, time::Duration};

use anyhow::{anyhow, bail};
use serde_json::json;
use tokio::time::Instant;

use super::{
    Violation,
    compliance::{Form, Suite},
    instances,
    subject::{Subject, With},
};
use mixer_adapter_core::{adapter::Code, framework::json::read_params, proto::Any, template::Variety};
use mixer_adapter_host::{
    NewSession,
    handler::{CallError, Caller},
};

type Outcome = anyhow::Result<()>;

/// Returns the rules that an adapter breaks.
pub(super) async fn violations(suite: &Suite<'_>) -> Vec<Violation> {
    // The other rules need descriptors and a configuration.
    for (rule, outcome) in [
        ("descriptors", descriptors(suite)),
        ("takes-its-configuration", takes_its_configuration(suite).await),
    ] {
        if let Err(error) = outcome {
            return vec![violation(rule, &error)];
        }
    }
    let rules = [
        ("refusals-name-the-field", refusals_name_the_field(suite).await),
        ("sessions-are-counted", sessions_are_counted(suite).await),
        ("unknown-session", unknown_session(suite).await),
        ("every-instance-is-answered", every_instance_is_answered(suite).await),
        ("quota-grants", quota_grants(suite).await),
        ("handlers-close", handlers_close(suite).await),
        ("panics-are-contained", panics_are_contained(suite).await),
        ("deadlines-are-honoured", deadlines_are_honoured(suite).await),
        ("calls-are-counted", calls_are_counted(suite).await),
    ];
    rules.into_iter().filter_map(|(rule, outcome)| Some(violation(rule, &outcome.err()?))).collect()
}

fn violation(rule: &'static str, error: &anyhow::Error) -> Violation {
    Violation { rule, reason: error.to_string() }
}

fn descriptors(suite: &Suite<'_>) -> Outcome {
    let subject = Subject::new(suite, Form::Plain)?;
    match subject.info.config.name() {
        "Params" => Ok(()),
        other => bail!("the configuration message is `{other}`; a real Mixer requires `Params`"),
    }
}

async fn takes_its_configuration(suite: &Suite<'_>) -> Outcome {
    let subject = Subject::new(suite, Form::Plain)?;
    let refused = |reason: &dyn fmt::Display| {
        anyhow!("{} is rejected: {reason}; set `config(..)` to one that it accepts", suite.options.config)
    };
    let config = subject.config().map_err(|error| refused(&error))?;
    let new = NewSession { adapter_config: Some(config.clone()), ..NewSession::default() };
    subject.host.validate(new, &Caller::default()).await.map_err(|error| refused(&error))?;
    subject.create_session(&config).await.map_err(|error| refused(&error))?;
    subject.close().await;
    Ok(())
}

async fn refusals_name_the_field(suite: &Suite<'_>) -> Outcome {
    let subject = Subject::new(suite, Form::Plain)?;
    let unknown = json!({"no_such_field_in_any_adapter": 1});
    match read_params(&subject.info.config, unknown) {
        Err(error) if error.field == "no_such_field_in_any_adapter" => {}
        other => bail!("an unknown field is accepted as {other:?}"),
    }
    for (field, text) in &suite.options.refused {
        let config = match subject.read(text) {
            Ok(config) => config,
            Err(error) if error.field == *field => continue,
            Err(error) => {
                bail!("{text} is rejected because of `{}`, not of `{field}`", error.field);
            }
        };
        refused_for_field(subject.create_session(&config).await.err(), field, text)?;
        for template in &subject.templates {
            refused_for_field(subject.call(template, With::Config(&config)).await.err(), field, text)?;
        }
    }
    match subject.close().await {
        0 if subject.host.handlers().live_count() == 0 => Ok(()),
        open => bail!("{open} handlers are open although their configuration was rejected"),
    }
}

fn refused_for_field(error: Option<CallError>, field: &str, text: &str) -> Outcome {
    let Some(error) = error else { bail!("{text} is not rejected") };
    let CallError::Refused { source, .. } = &error else {
        bail!("{text} is rejected, but not by the adapter: {error}");
    };
    if source.code() != Code::InvalidArgument {
        bail!("{text} is rejected with {:?}, not with InvalidArgument: {error}", source.code());
    }
    let fields: Vec<&str> = source.violations().iter().map(|violation| violation.field.as_str()).collect();
    if fields.contains(&field) {
        Ok(())
    } else {
        bail!("{text} is rejected because of {fields:?}, not of `{field}`: {error}")
    }
}

async fn sessions_are_counted(suite: &Suite<'_>) -> Outcome {
    let subject = Subject::new(suite, Form::Plain)?;
    let config = subject.config()?;
    let id = subject.create_session(&config).await?;
    let again = subject.create_session(&config).await?;
    if id != again {
        bail!("one configuration has two sessions, {id} and {again}: its encoding may be ambiguous");
    }
    let id = id.to_string();
    let live = |expected: usize, when: &str| match subject.host.handlers().live_count() {
        live if live == expected => Ok(()),
        live => bail!("{live} handlers are open {when}, not {expected}"),
    };
    live(1, "with two sessions of one configuration")?;
    subject.close_session(&id)?;
    live(1, "with one session left")?;
    for template in &subject.templates {
        if let Err(CallError::UnknownSession { .. }) = subject.call(template, With::Session(&id)).await {
            bail!("a session ends before its last CloseSession");
        }
    }
    subject.close_session(&id)?;
    live(0, "after the last session was closed")?;
    closed(&subject).await
}

async fn unknown_session(suite: &Suite<'_>) -> Outcome {
    let subject = Subject::new(suite, Form::Plain)?;
    let unknown = "0123456789abcdef0123456789abcdef";
    for template in &subject.templates {
        match subject.call(template, With::Session(unknown)).await {
            Err(error) if error.code() == Code::NotFound => {}
            other => {
                bail!("`{}` answers {other:?} to an unknown session", template.name());
            }
        }
    }
    match subject.close_session(unknown) {
        Err(error) if error.code() == Code::NotFound => Ok(()),
        other => bail!("closing an unknown session is answered {other:?}"),
    }
}

async fn every_instance_is_answered(suite: &Suite<'_>) -> Outcome {
    let subject = Subject::new(suite, Form::Plain)?;
    let config = subject.config()?;
    for template in &subject.templates {
        let descriptor = template.instance();
        let empty = [instances::empty(descriptor, ""), instances::empty(descriptor, &suite.options.instance)];
        for instance in empty.into_iter().chain(
            instances::fillings()
                .map(|filling| instances::filled(descriptor, &suite.options.instance, filling)),
        ) {
            let sent = instances::shown(&instance);
            let answer = subject.call_with(template, With::Config(&config), instance, 1, true).await;
            answered(answer.err()).map_err(|error| anyhow!("`{}` {error} for {sent}", template.name()))?;
        }
    }
    closed(&subject).await
}

/// An error must reject the request and not be a defect.
fn answered(error: Option<CallError>) -> Outcome {
    match error {
        Some(CallError::Panicked { message, .. }) => bail!("panics ({message})"),
        Some(CallError::DeadlineExceeded { .. }) => {
            bail!("does not return in time")
        }
        Some(error) if matches!(error.code(), Code::Internal | Code::Unknown) => {
            bail!("fails with {:?} ({error})", error.code())
        }
        _ => Ok(()),
    }
}

async fn quota_grants(suite: &Suite<'_>) -> Outcome {
    let subject = Subject::new(suite, Form::Plain)?;
    let config = subject.config()?;
    for template in subject.templates.iter().filter(|template| template.variety() == Variety::Quota) {
        for amount in [0, 1, 2, 1_000_000, i64::MAX, -1, -2, i64::MIN] {
            for best_effort in [true, false] {
                let instance = instances::empty(template.instance(), &suite.options.instance);
                let answer =
                    subject.call_with(template, With::Config(&config), instance, amount, best_effort).await;
                answered(answer.err()).map_err(|error| {
                    anyhow!("{error} for an amount of {amount}, best effort: {best_effort}")
                })?;
            }
        }
    }
    closed(&subject).await
}

async fn handlers_close(suite: &Suite<'_>) -> Outcome {
    let subject = Subject::new(suite, Form::Plain)?;
    let config = subject.config()?;
    subject.create_session(&config).await?;
    for template in &subject.templates {
        // Other rules test the answer.
        let _ = subject.call(template, With::Config(&config)).await;
    }
    closed(&subject).await?;
    // It must open again, without state of the first time.
    let again = Subject::new(suite, Form::Plain)?;
    again.create_session(&config).await.map_err(|error| anyhow!("it does not open again: {error}"))?;
    closed(&again).await
}

/// Expects that all handlers close in time and without a panic.
async fn closed(subject: &Subject<'_>) -> Outcome {
    let before = subject.info.panics();
    match (subject.close().await, subject.info.panics() - before) {
        (0, 0) => Ok(()),
        (0, panics) => bail!("{panics} panics while handlers closed"),
        (open, _) => {
            bail!("{open} handlers are not closed after {:?}", subject.suite.options.patience)
        }
    }
}

async fn panics_are_contained(suite: &Suite<'_>) -> Outcome {
    let subject = Subject::new(suite, Form::Panics)?;
    let config = subject.config()?;
    for template in &subject.templates {
        match subject.call(template, With::Config(&config)).await {
            Err(error @ CallError::Panicked { .. }) if error.code() == Code::Internal => {}
            other => {
                bail!("a panic in `{}` is answered {other:?}", template.name());
            }
        }
    }
    let (panics, calls) = (subject.info.panics(), subject.templates.len() as u64);
    if panics != calls {
        bail!("{panics} panics are counted of {calls}");
    }
    match subject.close().await {
        0 => Ok(()),
        open => bail!("{open} handlers do not close after a panic"),
    }
}

/// A deadline that allows a call to reach the handler.
const DEADLINE: Duration = Duration::from_millis(50);

async fn deadlines_are_honoured(suite: &Suite<'_>) -> Outcome {
    let subject = Subject::new(suite, Form::Hangs)?;
    let config = subject.config()?;
    // Opens the handler first, so that the time of opening does not count.
    subject.create_session(&config).await?;
    for template in &subject.templates {
        let instance = instances::empty(template.instance(), &suite.options.instance);
        let request = subject.request(template, With::Config(&config), instance, 1, true);
        let caller =
            Caller { connection: 1, deadline: Instant::now().checked_add(DEADLINE), ..Caller::default() };
        let call = subject.send(template, request, caller);
        match tokio::time::timeout(suite.options.patience, call).await {
            Ok(Err(error)) if error.code() == Code::DeadlineExceeded => {}
            Ok(other) => {
                bail!("`{}` answers {other:?} after its deadline", template.name());
            }
            Err(_) => {
                bail!("`{}` does not end at its deadline", template.name());
            }
        }
    }
    closed(&subject).await
}

async fn calls_are_counted(suite: &Suite<'_>) -> Outcome {
    let subject = Subject::new(suite, Form::Plain)?;
    let config: Any = subject.config()?;
    for template in &subject.templates {
        let _ = subject.call(template, With::Config(&config)).await;
        let method = subject.host.adapters().method(template.method());
        let series = method.map(|method| method.metrics()).unwrap_or_default();
        let counted: u64 = series
            .iter()
            .filter(|(adapter, _)| *adapter == suite.adapter)
            .map(|(_, calls)| (0..=16).map(|code| calls.count(tonic::Code::from_i32(code))).sum::<u64>())
            .sum();
        if counted != 1 {
            bail!("one call of `{}` is counted as {counted}", template.name());
        }
    }
    closed(&subject).await
}
