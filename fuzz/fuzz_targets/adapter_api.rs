#![no_main]

use std::{collections::BTreeMap, sync::LazyLock, time::Duration};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use mixer_adapter::prost::Message as _;
use mixer_adapter_denier::Denier;
use mixer_adapter_engine::proto::istio::mixer::adapter::model::v1beta1::CreateSessionRequest;
use mixer_adapter_host::{
    Host, NewSession,
    handler::{Adapters, Caller, Closing, TableLimits},
};
use mixer_adapter_list::List;
use mixer_adapter_memquota::MemQuota;
use tokio::{runtime::Runtime, time::Instant};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
});

static HOST: LazyLock<Host> = LazyLock::new(|| {
    let runtime = RUNTIME.handle().clone();
    let adapters = Adapters::builder(runtime.clone()).add::<Denier>().add::<List>().add::<MemQuota>();
    Host::new(adapters.build().unwrap(), TableLimits::default(), Closing::on(runtime))
});

/// The paths of the methods.
static PATHS: LazyLock<Vec<String>> =
    LazyLock::new(|| HOST.adapters().templates().map(|template| template.method.to_owned()).collect());

// A call of each template with these bytes, and a session with these bytes as its request.
fuzz_target!(|bytes: &[u8]| {
    let bytes = Bytes::copy_from_slice(bytes);
    RUNTIME.block_on(async {
        for path in &*PATHS {
            let deadline = Some(Instant::now() + Duration::from_secs(1));
            let answer = HOST.call(path, bytes.clone(), Caller { deadline, ..Caller::default() }).await;
            assert!(answer.is_some(), "{path}");
        }
        if let Ok(request) = CreateSessionRequest::decode(bytes) {
            let inferred_types: BTreeMap<_, _> = request.inferred_types.into_iter().collect();
            let new = NewSession { adapter_config: request.adapter_config, inferred_types };
            if let Ok(id) = HOST.create_session(new, &Caller::default()).await {
                HOST.close_session(&id.to_string(), &Caller::default()).await.unwrap();
            }
        }
    });
});
