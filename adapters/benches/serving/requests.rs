//! The requests that are measured.

use std::{collections::BTreeMap, net::SocketAddr};

use bytes::{BufMut as _, Bytes, BytesMut};
use mixer_adapter::{
    adapter::Config,
    prost::Message,
    proto::{Any, QuotaRequest, istio::mixer::adapter::model::v1beta1::quota_request::QuotaParams},
    template::{listentry, metric, quota},
    value::Value,
};
use mixer_adapter_engine::proto::istio::mixer::adapter::model::v1beta1::{
    CreateSessionRequest, CreateSessionResponse,
};
use mixer_adapters::{list, memquota, noop};

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) path: &'static str,
    config: Any,
    session: bool,
    request: Box<dyn Fn(Any) -> Vec<u8>>,
    types: Vec<(&'static str, &'static str)>,
    id: std::cell::RefCell<Option<String>>,
}

const LIST: &str = "/listentry.HandleListEntryService/HandleListEntry";
const METRIC: &str = "/metric.HandleMetricService/HandleMetric";
const QUOTA: &str = "/quota.HandleQuotaService/HandleQuota";
const QUOTA_INSTANCE: &str = "requestcount.instance.istio-system";

pub(super) fn cases() -> Vec<Case> {
    let noop = config(&noop::Params::default());
    let listed = config(&list::Params {
        overrides: (0..100).map(|index| format!("entry-{index}")).collect(),
        ..list::Params::default()
    });
    let metered = config(&memquota::Params {
        quotas: vec![memquota::params::Quota {
            name: QUOTA_INSTANCE.to_owned(),
            max_amount: i64::MAX / 4,
            valid_duration: Some(mixer_adapter::prost_types::Duration { seconds: 1, nanos: 0 }),
            ..memquota::params::Quota::default()
        }],
        ..memquota::Params::default()
    });
    let case = |name, path, config: &Any, session, request: fn(Any) -> Vec<u8>, types| Case {
        name,
        path,
        config: config.clone(),
        session,
        request: Box::new(request),
        types,
        id: std::cell::RefCell::new(None),
    };
    let list_type = || vec![("i.instance.istio-system", "listentry.Type")];
    let metric_type = || vec![("i.instance.istio-system", "metric.Type")];
    let quota_type = || vec![(QUOTA_INSTANCE, "quota.Type")];
    vec![
        case("HandleListEntry, no session", LIST, &noop, false, list_request, list_type()),
        case("HandleListEntry, session", LIST, &noop, true, list_request, list_type()),
        case("HandleMetric x100, no session", METRIC, &noop, false, metric_request, metric_type()),
        case("HandleMetric x100, session", METRIC, &noop, true, metric_request, metric_type()),
        case("HandleQuota, no session", QUOTA, &noop, false, quota_request, quota_type()),
        case("HandleQuota, session", QUOTA, &noop, true, quota_request, quota_type()),
        case("list of 100, no session", LIST, &listed, false, list_request, list_type()),
        case("memquota, no session", QUOTA, &metered, false, quota_request, quota_type()),
    ]
}

fn config<C: Config>(config: &C) -> Any {
    Any {
        type_url: format!("type.googleapis.com/{}", <C as Config>::NAME),
        value: config.encode_to_vec().into(),
    }
}

impl Case {
    /// Makes the session, if the case has one. The bare server ignores the id as it ignores a configuration.
    pub(super) fn prepare(&self, address: SocketAddr) {
        if self.session {
            *self.id.borrow_mut() = Some(create_session(address, self.config.clone(), &self.types));
        }
    }

    pub(super) fn frame(&self) -> Bytes {
        let config = match &*self.id.borrow() {
            Some(id) => session(id),
            None => self.config.clone(),
        };
        frame(&(self.request)(config))
    }
}

pub(super) fn session(id: &str) -> Any {
    Any { type_url: "google.protobuf.Any.type_url".to_owned(), value: Bytes::copy_from_slice(id.as_bytes()) }
}

pub(super) fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).expect("a small message"));
    frame.put_slice(message);
    frame.freeze()
}

pub(super) fn list_request(config: Any) -> Vec<u8> {
    listentry::HandleListEntryRequest {
        instance: Some(listentry::InstanceMsg {
            name: "i.instance.istio-system".to_owned(),
            value: Some(Value::from("entry-50")),
        }),
        adapter_config: Some(config),
        dedup_id: "3226220108304494177".to_owned(),
    }
    .encode_to_vec()
}

fn metric_request(config: Any) -> Vec<u8> {
    let dimensions: BTreeMap<String, Value> =
        (0..10).map(|index| (format!("dimension_{index}"), Value::from("some-value"))).collect();
    let instance = metric::InstanceMsg {
        name: "i.instance.istio-system".to_owned(),
        value: Some(Value::from(1)),
        dimensions,
        ..metric::InstanceMsg::default()
    };
    metric::HandleMetricRequest {
        instances: vec![instance; 100],
        adapter_config: Some(config),
        dedup_id: "3226220108304494177".to_owned(),
    }
    .encode_to_vec()
}

fn quota_request(config: Any) -> Vec<u8> {
    quota::HandleQuotaRequest {
        instance: Some(quota::InstanceMsg {
            name: QUOTA_INSTANCE.to_owned(),
            dimensions: [("source".to_owned(), Value::from("anonymous"))].into(),
        }),
        adapter_config: Some(config),
        dedup_id: String::new(),
        quota_request: Some(QuotaRequest {
            quotas: [(QUOTA_INSTANCE.to_owned(), QuotaParams { amount: 1, ..QuotaParams::default() })].into(),
        }),
    }
    .encode_to_vec()
}

pub(super) fn create_session(address: SocketAddr, config: Any, types: &[(&str, &str)]) -> String {
    let request = CreateSessionRequest {
        adapter_config: Some(config),
        inferred_types: types
            .iter()
            .map(|(instance, type_url)| {
                ((*instance).to_owned(), Any { type_url: (*type_url).to_owned(), value: Bytes::new() })
            })
            .collect(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let response: CreateSessionResponse = runtime.block_on(async {
        let uri: mixer_adapter::tonic::transport::Endpoint =
            format!("http://{address}").parse().expect("an address");
        let channel = uri.connect().await.expect("the server listens");
        let mut client = mixer_adapter::tonic::client::Grpc::new(channel);
        client.ready().await.expect("the server listens");
        let path = http::uri::PathAndQuery::from_static(
            "/istio.mixer.adapter.model.v1beta1.InfrastructureBackend/CreateSession",
        );
        let codec = tonic_prost::ProstCodec::<CreateSessionRequest, CreateSessionResponse>::default();
        let request = mixer_adapter::tonic::Request::new(request);
        client.unary(request, path, codec).await.expect("a session").into_inner()
    });
    assert!(!response.session_id.is_empty(), "{:?}", response.status);
    response.session_id
}
