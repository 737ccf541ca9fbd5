//! What sessions cost as they grow in number: memory each, and time for a call.

use std::sync::Arc;

use mixer_adapter::{adapter::Config, prost::Message, proto::Any};
use mixer_adapter_host::{
    Host, NewSession,
    handler::{Adapters, Caller, Closing, TableLimits},
    session::{SessionLimits, SessionOptions},
};
use mixer_adapters::list::{List, Params};

use super::{measure::median, requests};

const LIST: &str = "/listentry.HandleListEntryService/HandleListEntry";
const CALLS: u32 = 200_000;

pub(super) fn run() {
    println!(
        "\nsessions of `listchecker`, configuration of 100 bytes, one inferred type; calls by session id\n"
    );
    println!("{:>10} {:>18} {:>14}", "sessions", "bytes a session", "ns a call");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    let adapters = Adapters::builder(runtime.handle().clone()).add::<List>().build().expect("one adapter");
    let unlimited = SessionLimits::default().sessions(usize::MAX).bytes(usize::MAX);
    let host = Host::new(adapters, TableLimits::default(), Closing::on(runtime.handle().clone()));
    let host = Arc::new(host.with_session_options(SessionOptions::default().limits(unlimited)));
    let empty = resident();
    let mut made = 0_u32;
    for target in [1_u32, 1_000, 1_000_000] {
        let id = runtime.block_on(async {
            let mut id = String::new();
            let caller = Caller { connection: 1, ..Caller::default() };
            while made < target {
                id = host.create_session(session(made), &caller).await.expect("a session").to_string();
                made += 1;
            }
            id
        });
        let memory = resident().saturating_sub(empty) / u64::from(target);
        let rounds = (0..5).map(|_| runtime.block_on(call(&host, &id))).collect();
        println!("{target:>10} {memory:>18} {:>14.0}", median(rounds));
    }
}

fn session(index: u32) -> NewSession {
    // Five entries of eighteen bytes and what protobuf needs around them: one hundred bytes.
    let overrides = (0..5).map(|entry| format!("entry-{index:08}-{entry:03}")).collect();
    let config = Params { overrides, ..Params::default() };
    let any = Any {
        type_url: format!("type.googleapis.com/{}", <Params as Config>::NAME),
        value: config.encode_to_vec().into(),
    };
    let instance_type = Any { type_url: "listentry.Type".to_owned(), value: vec![8, 1].into() };
    let instance = format!("i{index}.instance.istio-system");
    NewSession { adapter_config: Some(any), inferred_types: [(instance, instance_type)].into() }
}

async fn call(host: &Host, id: &str) -> f64 {
    let request: bytes::Bytes = requests::list_request(requests::session(id)).into();
    let start = std::time::Instant::now();
    for _ in 0..CALLS {
        let answer = host.call(LIST, request.clone(), Caller { connection: 1, ..Caller::default() }).await;
        assert!(matches!(answer, Some(Ok(_))));
    }
    start.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

/// Bytes of memory in use by the process.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 =
        statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("the format of statm");
    pages * 4096
}
