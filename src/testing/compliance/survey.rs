//! The answers of an adapter to all kinds of instances, which several rules are about.

use std::{cmp::Reverse, fmt, time::Duration};

use anyhow::anyhow;
use prost::bytes::Bytes;
use prost_reflect::DynamicMessage;
use tokio::time::Instant;

use super::{
    common::{
        Amount, Answer, Asked, Failure, FailureKind, Options, Repeats, Subject, With, read_yaml, request,
    },
    instances,
};
use mixer_adapter_core::{
    framework::{dynamic::DynamicTemplate, json::read_json},
    template::Variety,
};

/// The answers of one template.
pub(crate) struct Survey {
    pub(crate) template: DynamicTemplate,
    pub(crate) cases: Vec<Case>,
}

/// An instance and its answer.
pub(crate) struct Case {
    instance: DynamicMessage,
    /// The amount of a quota call that is about the amount, not the instance.
    pub(crate) amount: Option<Amount>,
    pub(crate) request: Bytes,
    pub(crate) outcome: Result<Answer, Failure>,
    /// How a further answer differs.
    change: Option<String>,
    /// How often the call was suspended.
    pub(crate) awaits: usize,
    /// The longest time between two awaits.
    pub(crate) longest: Duration,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&instances::shown(&self.instance))
    }
}

impl Survey {
    pub(crate) fn answered(&self) -> impl Iterator<Item = (&Case, &Answer)> {
        self.cases.iter().filter_map(|case| Some((case, case.outcome.as_ref().ok()?)))
    }

    pub(crate) fn failures(&self) -> impl Iterator<Item = (&Case, &Failure)> {
        self.cases.iter().filter_map(|case| Some((case, case.outcome.as_ref().err()?)))
    }

    /// Returns the first answered instance of those whose call was suspended most often.
    pub(crate) fn most_suspended(&self) -> Option<&Case> {
        self.answered().map(|(case, _)| case).min_by_key(|case| Reverse(case.awaits))
    }

    /// Describes an answer that changed.
    pub(crate) fn change(&self) -> Option<String> {
        let (case, change) = self.cases.iter().find_map(|case| Some((case, case.change.as_ref()?)))?;
        Some(format!("`{}` {change} for {case}", self.template.name()))
    }
}

/// The number of calls with each instance of a check.
const REPEATS: usize = 3;

/// The shortest time for a template, in which many instances are answered on a busy machine, too.
const LEAST: Duration = Duration::from_secs(2);

/// Calls every template with all instances, each template for at most its part of `share`.
pub(crate) async fn survey<S: Subject>(subject: &S, share: Duration) -> anyhow::Result<Vec<Survey>> {
    let config = subject.config()?;
    let templates = subject.templates();
    let share = (share / u32::try_from(templates.len()).unwrap_or(u32::MAX)).max(LEAST);
    let mut surveys = Vec::new();
    for template in templates {
        let instances = instances(template, subject.options())?;
        let request = |(instance, amount): &(DynamicMessage, Option<Amount>)| {
            let with = With::Config(config.as_ref());
            request(subject.options(), template, with, instance.clone(), amount.unwrap_or((1, true)))
        };
        let requests: Vec<Bytes> = instances.iter().map(request).collect();
        let is_check = matches!(template.variety(), Variety::Check | Variety::CheckWithOutput);
        let repeats = Repeats { count: if is_check { REPEATS } else { 1 }, end: Instant::now() + share };
        let asked = subject.send_all(template, requests.clone(), repeats).await;
        let cases = instances.into_iter().zip(requests).zip(asked);
        let cases: Vec<Case> =
            cases.filter_map(|((instance, request), asked)| Case::new(instance, request, asked)).collect();
        let is_blocked = cases.last().is_some_and(Case::is_blocked);
        surveys.push(Survey { template: template.clone(), cases });
        if is_blocked {
            break;
        }
    }
    Ok(surveys)
}

impl Case {
    fn new(
        (instance, amount): (DynamicMessage, Option<Amount>),
        request: Bytes,
        asked: Asked,
    ) -> Option<Self> {
        let Asked { answers, awaits, longest } = asked;
        let mut answers = answers.into_iter();
        let (outcome, received) = answers.next()?;
        let change = outcome.as_ref().ok().and_then(|first| {
            (2..).zip(answers).find_map(|(uses, (answer, time))| {
                first.difference(answer.as_ref().ok()?, time.duration_since(received), uses)
            })
        });
        Some(Self { instance, amount, request, outcome, change, awaits, longest })
    }

    /// Whether its call blocks the thread without an end.
    pub(crate) fn is_blocked(&self) -> bool {
        self.outcome.as_ref().is_err_and(|failure| failure.kind == FailureKind::Blocked)
    }
}

/// Returns the instances of a template; for quotas, also with unusual amounts.
fn instances(
    template: &DynamicTemplate,
    options: &Options,
) -> anyhow::Result<Vec<(DynamicMessage, Option<Amount>)>> {
    let descriptor = template.instance();
    let examples = options.examples.iter().filter(|(name, _)| name == template.name());
    let examples = examples.map(|(_, fields)| {
        let read = read_yaml(fields).and_then(|json| read_json(descriptor, json));
        let instance =
            read.map_err(|error| anyhow!("the example {fields} of `{}`: {error}", template.name()))?;
        Ok(instances::named(instance, &options.instance))
    });
    let mut instances = examples.collect::<anyhow::Result<Vec<_>>>()?;
    instances.push(instances::empty(descriptor, ""));
    instances.push(instances::empty(descriptor, &options.instance));
    instances.extend(instances::all(
        descriptor,
        &options.instance,
        options.config.as_deref().unwrap_or_default(),
    ));
    let mut instances: Vec<_> = instances.into_iter().map(|instance| (instance, None)).collect();
    if template.variety() == Variety::Quota {
        let amounts = [0, 1, 2, 1_000_000, i64::MAX, -1, -2, i64::MIN];
        let amounts = amounts.into_iter().flat_map(|amount| [(amount, true), (amount, false)]);
        let empty = instances::empty(descriptor, &options.instance);
        instances.extend(amounts.map(|amount| (empty.clone(), Some(amount))));
    }
    Ok(instances)
}
