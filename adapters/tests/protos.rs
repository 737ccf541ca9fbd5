//! The configurations of the adapters: handlers that were written for one version are read by the next.
#![allow(clippy::unwrap_used)]

#[path = "../../tests/protos/baseline.rs"]
mod baseline;
#[path = "../../tests/protos/facts.rs"]
mod facts;

use std::{collections::BTreeSet, path::Path};

use mixer_adapter::{Adapter, adapter::Config};
use mixer_adapters::{
    denier::Denier, list::List, memquota::MemQuota, noop::Noop, prometheus::Prometheus, stdio::Stdio,
};
use prost_reflect::DescriptorPool;

fn of<A: Adapter>() -> BTreeSet<String> {
    facts::facts(&DescriptorPool::decode(<A::Config as Config>::DESCRIPTOR).unwrap())
}

#[test]
fn published_protos_remain_compatible() {
    let facts =
        [of::<Denier>(), of::<List>(), of::<MemQuota>(), of::<Noop>(), of::<Prometheus>(), of::<Stdio>()];
    let facts = facts.into_iter().flatten().filter(|fact| fact.contains(" adapter.")).collect();
    baseline::check(&facts, &Path::new(env!("CARGO_MANIFEST_DIR")).join("baseline.txt"));
}
