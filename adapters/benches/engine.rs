//! What the engine costs: a Check over gRPC against a bare tonic server that answers the same bytes with a constant, rules
//! as they grow in number, reports of a hundred requests, and building a snapshot.
//!
//! `cargo bench -p mixer-adapters --bench engine`. docs/performance.md explains the figures.
#![allow(clippy::print_stdout)]

#[path = "engine/bare.rs"]
mod bare;
#[path = "engine/build.rs"]
mod build;
#[path = "load/client.rs"]
mod client;
#[path = "load/measure.rs"]
mod measure;
#[path = "engine/rules.rs"]
mod rules;
#[path = "engine/subject.rs"]
mod subject;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [mode, calls] = &arguments[..]
        && mode == "in-process"
    {
        return rules::check_in_process(calls.parse().expect("a number of calls"));
    }
    let filter = arguments.into_iter().find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let wanted = |name: &str| name.contains(&filter);
    if wanted("check") {
        subject::compare();
    }
    if wanted("rules") {
        rules::grow();
    }
    if wanted("report") {
        rules::report_hundred();
    }
    if wanted("build") {
        build::time();
    }
}
