//! What the services of Envoy cost: checks, rate limits and access logs against a bare tonic server that answers the same bytes
//! with a constant, and the latency that a check adds to a request through the real Envoy.
//!
//! `cargo bench -p mixer-adapters --bench envoy`, or with a filter: `-- checks`, `limits`, `logs`, `paced`, `through`.
//! The arguments `in-process KIND COUNT` only make calls, for a counter of instructions.
//! docs/performance.md explains the figures.
#![allow(clippy::print_stdout)]

mod bare;
#[path = "../load/client.rs"]
mod client;
mod in_process;
mod logs;
#[path = "../load/measure.rs"]
mod measure;
mod ours;
mod paced;
mod requests;
#[path = "../../tests/it/support/mod.rs"]
#[allow(clippy::unwrap_used, unused_imports)]
mod support;
mod through;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use measure::{Subject, compare, heading};
use ours::Cache;

const CHECK: &str = "/envoy.service.auth.v3.Authorization/Check";
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, kind, calls] = &arguments[..]
        && mode == "in-process"
    {
        return in_process::run(kind, calls.parse().expect("a number of calls"));
    }
    let filter = arguments.into_iter().find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let wanted = |name: &str| name.contains(&filter);
    let evaluating = Subject::start("evaluating", |address| ours::serve(Cache::Off, address));
    let caching = Subject::start("caching", |address| ours::serve(Cache::On, address));
    let bare = Subject::start("bare", bare::serve);
    let check = requests::frame(&requests::check());
    heading();
    if wanted("checks") {
        compare("Check, one rule and one adapter", CHECK, check.clone(), &evaluating, &bare);
        compare("Check, from the cache", CHECK, check.clone(), &caching, &bare);
    }
    if wanted("limits") {
        let request = requests::frame(&requests::rate_limit());
        compare("ShouldRateLimit, one quota", SHOULD_RATE_LIMIT, request, &evaluating, &bare);
    }
    if wanted("logs") {
        logs::compare(&evaluating, &bare);
    }
    if wanted("paced") {
        paced::compare(
            CHECK,
            &check,
            &[("evaluated", &evaluating), ("from the cache", &caching), ("bare", &bare)],
        );
    }
    if wanted("through") {
        through::compare(&[("evaluated", &evaluating), ("from the cache", &caching), ("bare", &bare)]);
    }
}
