//! The rules that need the adapter in this process.

use std::{cell::Cell, fmt, future::ready, time::Duration};

use anyhow::{anyhow, bail};
use tokio::time::{Instant, sleep};
use tonic::Code;

use super::{
    common::{self, Subject as _, With, call, still_answers},
    observed::Fault,
    process::{Process, Suite, caller},
    run::{Outcome, Run, Tested},
    survey::{Case, Survey, survey},
    usage,
};
use mixer_adapter_core::framework::dynamic::{DescriptorSet, DynamicTemplate};
use mixer_adapter_host::{
    NewSession,
    handler::{CallError, TemplateInfo},
};

/// Tests all rules in their order.
pub(super) async fn test(suite: &Suite<'_>, mut run: Run<'_>) -> Vec<Tested> {
    run.essential("descriptors", async { descriptors(suite) }).await;
    run.essential("takes-its-configuration", takes_its_configuration(suite)).await;
    let mut surveys = Vec::new();
    let share = run.share();
    run.essential("threads-are-not-blocked", threads_are_not_blocked(suite, share, &mut surveys)).await;
    let surveys = &surveys[..];
    run.rule("refusals-name-the-field", refusals_name_the_field(suite)).await;
    run.rule("sessions-are-counted", sessions_are_counted(suite)).await;
    run.rule("unknown-session", async { common::unknown_session(&Process::new(suite)?).await }).await;
    run.rule("every-instance-is-answered", async { common::every_instance_is_answered(surveys) }).await;
    run.rule("denials-are-answers", async { common::denials_are_answers(surveys) }).await;
    let again = async { survey(&Process::new(suite)?, share).await };
    run.rule("answers-hold", common::answers_hold(surveys, again)).await;
    run.rule("checks-have-an-opinion", async { common::checks_have_an_opinion(surveys) }).await;
    run.rule("quota-grants", async { common::quota_grants(surveys) }).await;
    run.rule("cancelled-calls-leave-nothing", async {
        common::cancelled_calls_leave_nothing(&Process::new(suite)?, surveys).await
    })
    .await;
    run.rule("handlers-close", handlers_close(suite)).await;
    run.alone("handlers-release-everything", usage::handlers_release_everything(suite, share)).await;
    run.rule("panics-are-contained", panics_are_contained(suite, surveys)).await;
    run.rule("deadlines-are-honoured", deadlines_are_honoured(suite, surveys)).await;
    run.rule("calls-are-counted", calls_are_counted(suite)).await;
    run.tested
}

fn descriptors(suite: &Suite<'_>) -> Outcome {
    let subject = Process::new(suite)?;
    let templates = subject.info.templates.iter().map(|template| {
        let read = DescriptorSet::decode(template.descriptor).and_then(|set| DynamicTemplate::new(&set));
        let read = read.map_err(|error| anyhow!("the descriptor of `{}`: {error}", template.name))?;
        let described = (read.name(), read.variety(), read.method());
        if described != (template.name, template.variety, template.method) {
            let TemplateInfo { name, variety, method, .. } = template;
            bail!("`{name}` is {variety} at {method}, its descriptor has {described:?}");
        }
        Ok(read)
    });
    let _ = suite.templates.set(templates.collect::<anyhow::Result<_>>()?);
    match subject.info.config.name() {
        "Params" => Ok(()),
        other => bail!("the configuration message is `{other}`; a real Mixer requires `Params`"),
    }
}

async fn takes_its_configuration(suite: &Suite<'_>) -> Outcome {
    let subject = Process::new(suite)?;
    let text = suite.options.config.as_deref().unwrap_or("{}");
    let refused = |reason: &dyn fmt::Display| {
        anyhow!("{text} is rejected: {reason}; set `config(..)` to one that it accepts")
    };
    let config = subject.config().map_err(|error| refused(&error))?;
    let new = NewSession { adapter_config: config.clone(), ..NewSession::default() };
    let host = subject.host.clone();
    let validated = subject.answer(async move { host.validate(new, &caller()).await });
    validated.await.map_err(|error| refused(&error))?;
    subject.create_session(config.as_ref()).await.map_err(|error| refused(&error))?;
    subject.close().await;
    Ok(())
}

async fn refusals_name_the_field(suite: &Suite<'_>) -> Outcome {
    let subject = Process::new(suite)?;
    match subject.read(r#"{"no_such_field_in_any_adapter": 1}"#) {
        Err(error) if error.field == "no_such_field_in_any_adapter" => {}
        other => bail!("an unknown field is accepted as {other:?}"),
    }
    common::refusals_name_the_field(&subject).await?;
    match subject.close().await {
        0 if subject.host.handlers().live_count() == 0 => Ok(()),
        open => bail!("{open} handlers are open although their configuration was rejected"),
    }
}

async fn sessions_are_counted(suite: &Suite<'_>) -> Outcome {
    let subject = Process::new(suite)?;
    let config = subject.config()?;
    let create = async || subject.create_session(config.as_ref()).await.map_err(|error| anyhow!("{error}"));
    let (id, again) = (create().await?, create().await?);
    if id != again {
        bail!("one configuration has two sessions, {id} and {again}: its encoding may be ambiguous");
    }
    let close = async || subject.close_session(&id).await.map_err(|error| anyhow!("{error}"));
    let live = |expected: usize, when: &str| match subject.host.handlers().live_count() {
        live if live == expected => Ok(()),
        live => bail!("{live} handlers are open {when}, not {expected}"),
    };
    live(1, "with two sessions of one configuration")?;
    close().await?;
    live(1, "with one session left")?;
    for template in subject.templates() {
        if let Err(failure) = call(&subject, template, With::Session(&id)).await
            && failure.message.starts_with("session `")
        {
            bail!("a session ends before its last CloseSession");
        }
    }
    close().await?;
    live(0, "after the last session was closed")?;
    subject.closed().await
}

/// The longest time between two awaits that is not blocking.
const BLOCKING: Duration = Duration::from_millis(25);

/// The longest time that tasks in the background may delay others, which also have to wait for a processor.
const STALLED: Duration = Duration::from_millis(250);

/// Surveys the adapter, and expects that it blocks its thread neither in calls nor in `close` nor by tasks in the background.
async fn threads_are_not_blocked(suite: &Suite<'_>, share: Duration, surveys: &mut Vec<Survey>) -> Outcome {
    let subject = Process::new(suite)?;
    let (surveyed, mut stall) = stalled(&subject, survey(&subject, share)).await;
    *surveys = surveyed?;
    let mut close = blocked_closing(&subject).await;
    for Survey { template, cases } in surveys.iter().filter(|_| !suite.blocking) {
        for case in cases {
            if let Some(blocked) = blocked(suite, template, case).await? {
                bail!("`{}` blocks its thread for {blocked} for {case}", template.name());
            }
        }
    }
    for _ in 0..2 {
        if stall < STALLED && (close < BLOCKING || suite.blocking) {
            return Ok(());
        }
        // A machine that is busy can delay a thread, too, but not each time.
        let subject = Process::new(suite)?;
        let config = subject.config()?;
        let opened = async {
            let _ = subject.create_session(config.as_ref()).await;
            sleep(STALLED).await;
        };
        stall = stall.min(stalled(&subject, opened).await.1);
        close = close.min(blocked_closing(&subject).await);
    }
    if stall >= STALLED {
        bail!("tasks in the background block the thread for {stall:.0?}");
    }
    if close >= BLOCKING && !suite.blocking {
        bail!("`close` blocks its thread for {close:.0?}");
    }
    Ok(())
}

/// Closes all handlers, and returns how long one of them blocks its thread.
async fn blocked_closing(subject: &Process<'_>) -> Duration {
    let _ = subject.longest();
    subject.close().await;
    subject.longest()
}

/// Repeats a call that took long between two awaits. Returns how long it blocks its thread.
async fn blocked(
    suite: &Suite<'_>,
    template: &DynamicTemplate,
    case: &Case,
) -> anyhow::Result<Option<String>> {
    if case.is_blocked() {
        return Ok(Some(format!("more than {:?}", suite.options.patience)));
    }
    let mut shortest = case.longest;
    let subject = Process::new(suite)?;
    let start = Instant::now();
    for _ in 0..4 {
        if shortest < BLOCKING {
            return Ok(None);
        }
        if start.elapsed() > STALLED * 4 {
            break;
        }
        // It may be the first call that is slow, or a machine that is busy.
        let _ = subject.longest();
        let _ = subject.send(template, case.request.clone()).await;
        shortest = shortest.min(subject.longest());
    }
    Ok((shortest >= BLOCKING).then(|| format!("{shortest:.0?}")))
}

/// Measures how long the adapter's runtime delays a task while `work` runs and once after it, beyond the delays of this thread.
async fn stalled<T>(subject: &Process<'_>, work: impl Future<Output = T>) -> (T, Duration) {
    let (longest, own) = (Cell::new(Duration::ZERO), Cell::new(Duration::ZERO));
    let ping = async || {
        let start = Instant::now();
        subject.run(ready(())).await;
        longest.set(longest.get().max(start.elapsed()));
    };
    let pings = async {
        loop {
            ping().await;
            let pause = Duration::from_millis(20);
            let start = Instant::now();
            sleep(pause).await;
            own.set(own.get().max(start.elapsed().saturating_sub(pause)));
        }
    };
    let output = tokio::select! {
        output = work => output,
        () = pings => unreachable!("pings do not end"),
    };
    ping().await;
    (output, longest.get().saturating_sub(own.get() * 4))
}

async fn handlers_close(suite: &Suite<'_>) -> Outcome {
    let subject = Process::new(suite)?;
    let config = subject.config()?;
    let open = async |subject: &Process<'_>| {
        let created = subject.create_session(config.as_ref()).await;
        created.map_err(|error| anyhow!("it does not open again: {error}"))
    };
    open(&subject).await?;
    for template in subject.templates() {
        // Other rules test the answer.
        let _ = call(&subject, template, With::Config(config.as_ref())).await;
    }
    subject.closed().await?;
    // It must open again, without state of the first time.
    let again = Process::new(suite)?;
    open(&again).await?;
    again.closed().await
}

/// The number of awaits at which calls panic or hang.
const FAULTS: usize = 4;

/// Returns the first awaits of each template, with the instance whose call is suspended most often.
fn awaits(surveys: &[Survey]) -> impl Iterator<Item = (&DynamicTemplate, &Case, usize)> {
    let cases = surveys.iter().filter_map(|survey| Some((&survey.template, survey.most_suspended()?)));
    cases.flat_map(|(template, case)| (0..=case.awaits.min(FAULTS)).map(move |at| (template, case, at)))
}

async fn panics_are_contained(suite: &Suite<'_>, surveys: &[Survey]) -> Outcome {
    let subject = Process::new(suite)?;
    let mut expected = 0;
    for (template, case, at) in awaits(surveys) {
        let patience = suite.options.patience;
        let (faulty, answers) =
            subject.interrupt(template, &case.request, (Fault::Panic, at), 2, patience).await;
        expected += faulty as u64;
        let contained = answers.iter().filter_map(|answer| answer.as_ref().err());
        let contained = contained.filter(|error| matches!(error, CallError::Panicked { .. })).count();
        if contained != faulty {
            bail!("{contained} of {faulty} panics at await {at} of `{}` are contained", template.name());
        }
        still_answers(&subject, template, case)
            .await
            .map_err(|error| anyhow!("after a panic at await {at} `{}` {error}", template.name()))?;
    }
    let panics = subject.info.panics();
    if panics != expected {
        bail!("{panics} panics are counted of {expected}");
    }
    if subject.close().await > 0 {
        bail!("a handler does not close after a panic");
    }
    Ok(())
}

/// A deadline that allows a call to reach the handler.
const DEADLINE: Duration = Duration::from_millis(50);

async fn deadlines_are_honoured(suite: &Suite<'_>, surveys: &[Survey]) -> Outcome {
    let subject = Process::new(suite)?;
    // Opens the handler first, so that the time of opening does not count.
    let config = subject.config()?;
    subject.create_session(config.as_ref()).await.map_err(|error| anyhow!("{error}"))?;
    for (template, case, at) in awaits(surveys) {
        let (faulty, answers) =
            subject.interrupt(template, &case.request, (Fault::Hang, at), 1, DEADLINE).await;
        match &answers[..] {
            [Err(CallError::DeadlineExceeded { .. })] => {}
            [_] if faulty == 0 => {}
            [other] => bail!("`{}` answers {other:?} after its deadline", template.name()),
            _ => bail!("`{}` does not end at its deadline", template.name()),
        }
        still_answers(&subject, template, case)
            .await
            .map_err(|error| anyhow!("after a deadline at await {at} `{}` {error}", template.name()))?;
    }
    subject.closed().await.map_err(|error| anyhow!("after a deadline {error}"))
}

async fn calls_are_counted(suite: &Suite<'_>) -> Outcome {
    let subject = Process::new(suite)?;
    let config = subject.config()?;
    for template in subject.templates() {
        let _ = call(&subject, template, With::Config(config.as_ref())).await;
        let method = subject.host.adapters().method(template.method());
        let series = method.map(|method| method.metrics()).unwrap_or_default();
        let counted: u64 = series
            .iter()
            .filter(|(adapter, _)| *adapter == suite.adapter)
            .map(|(_, calls)| (0..=16).map(|code| calls.count(Code::from_i32(code))).sum::<u64>())
            .sum();
        if counted != 1 {
            bail!("one call of `{}` is counted as {counted}", template.name());
        }
    }
    subject.closed().await
}
