//! What a source costs: one resource of many changed, and many sinks. In bytes, in time until a sink has it, in CPU, and in
//! memory. An argument selects `change` or `crowd`.
#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

mod change;
mod client;
mod crowd;
mod served;

fn main() {
    if let Some(crowd) = crowd::Crowd::asked_for() {
        return crowd.run();
    }
    if crowd::source() {
        return;
    }
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    if "change".contains(&filter) {
        change::run();
    }
    if "crowd".contains(&filter) {
        crowd::run();
    }
}
