//! What a source costs: one resource of many changed, and many sinks. In bytes, in time until a sink has it, and in memory.
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
    change::run();
    crowd::run();
}
