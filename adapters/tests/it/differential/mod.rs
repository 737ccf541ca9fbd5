//! What the adapters in the process of a real Mixer 1.3.8 answered and wrote, with the configurations and the requests that led to
//! it, against ours: small cases of one cause each, and random ones.

#![allow(clippy::print_stdout)]

mod answer;
mod case;
mod compare;
mod engine;
mod known;
mod request;

use crate::{referenced, support};

use std::sync::Arc;

use case::Case;
use compare::Difference;
use tokio::sync::Semaphore;

/// How many cases run at a time: most of their time they wait.
const AT_A_TIME: usize = 8;

/// A difference with what led to it.
fn describe(case: &Case, difference: &Difference) -> String {
    let Difference { place, request, expected, actual } = difference;
    let request = request.map_or_else(String::new, |index| {
        format!("request: {}\n", serde_json::to_string(&case.requests[index]).unwrap())
    });
    format!("{}: {place}\n{request}recorded: {expected}\n    ours: {actual}\n", case.name)
}

async fn run(cases: Vec<Case>) -> Vec<(Case, Vec<Difference>)> {
    let permits = Arc::new(Semaphore::new(AT_A_TIME));
    let runs = cases.into_iter().map(|case| {
        let permits = permits.clone();
        tokio::spawn(async move {
            let _permit = permits.acquire().await.unwrap();
            let outcome = engine::run(&case).await;
            let differences = compare::compare(&case, &outcome);
            (case, differences)
        })
    });
    let runs: Vec<_> = runs.collect();
    let mut compared = Vec::new();
    for run in runs {
        compared.push(run.await.unwrap());
    }
    compared
}

/// Fails with configuration, request and both outcomes of every difference that is not known.
async fn all_agree(cases: Vec<Case>) {
    let count = cases.len();
    let mut failed = 0;
    for (case, differences) in run(cases).await {
        match known::unknown(&case.name, differences) {
            Ok(differences) if differences.is_empty() => continue,
            Ok(differences) => {
                println!("configuration of {}:\n{}", case.name, case.configuration());
                differences.iter().for_each(|difference| println!("{}", describe(&case, difference)));
            }
            Err(gone) => println!("{gone}"),
        }
        failed += 1;
    }
    assert_eq!(failed, 0, "of {count} cases differ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cases_of_one_cause_each_have_the_recorded_outcome() {
    let cases = case::named();
    assert_eq!(cases.len(), 32);
    all_agree(cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_configurations_and_requests_have_the_recorded_outcome() {
    let cases = case::generated();
    assert_eq!(cases.len(), 220);
    all_agree(cases).await;
}
