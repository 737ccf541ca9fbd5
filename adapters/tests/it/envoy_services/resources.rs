//! The resources for Istio and Envoy Gateway that `envoy-config` prints: fields are those of the APIs.

use serde_json::{Value as Json, json};

use super::{
    mesh::envoy_config,
    support::envoy::{Envoy, is_there},
};

const LIMITED: [&str; 4] = ["--rate-limit", "per-user", "--descriptor", "user=x-user"];

fn documents(flags: &[&str]) -> Vec<Json> {
    serde_saphyr::from_multiple(&envoy_config(&[flags, &LIMITED].concat())).unwrap()
}

fn kinds(documents: &[Json]) -> Vec<(&str, &str)> {
    let text = |document: &'_ Json, field: &str| document[field].as_str().map(|text| text.to_owned());
    let kinds = documents.iter().filter(|document| text(document, "kind").is_some());
    kinds
        .map(|document| (document["apiVersion"].as_str().unwrap(), document["kind"].as_str().unwrap()))
        .collect()
}

fn of_kind<'d>(documents: &'d [Json], kind: &str) -> &'d Json {
    documents.iter().find(|document| document["kind"] == kind).unwrap()
}

/// Fails if an object has a field that is not one of those of its type in the API.
fn has_only(object: &Json, fields: &[&str]) {
    for field in object.as_object().unwrap().keys() {
        assert!(fields.contains(&field.as_str()), "{field} is not a field: {object}");
    }
}

/// A bootstrap of a cluster and an HTTP filter alone.
fn with(cluster: &Json, filter: &Json) -> String {
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
    });
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "front",
        "route_config": {"name": "none"},
        "http_filters": [filter, router],
    });
    json!({"static_resources": {
        "listeners": [{
            "name": "front",
            "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
            "filter_chains": [{"filters": [{
                "name": "envoy.filters.network.http_connection_manager", "typed_config": manager,
            }]}],
        }],
        "clusters": [cluster],
    }})
    .to_string()
}

#[test]
fn resources_for_istio_have_fields_of_its_api() {
    let address = "mixer-adapter.istio-system.svc.cluster.local:9091";
    let documents = documents(&["--istio", "--address", address, "--namespace", "shop"]);
    assert_eq!(
        kinds(&documents),
        [
            ("security.istio.io/v1", "AuthorizationPolicy"),
            ("telemetry.istio.io/v1", "Telemetry"),
            ("networking.istio.io/v1alpha3", "EnvoyFilter"),
        ]
    );

    // istio/api, mesh/v1alpha1/config.proto: MeshConfig.ExtensionProvider.
    let providers = documents[0]["meshConfig"]["extensionProviders"].as_array().unwrap();
    let [check, http, tcp] = &providers[..] else { panic!("{providers:?}") };
    for provider in [&check["envoyExtAuthzGrpc"], &http["envoyHttpAls"], &tcp["envoyTcpAls"]] {
        let service = (provider["service"].as_str().unwrap(), &provider["port"]);
        assert_eq!(service, ("mixer-adapter.istio-system.svc.cluster.local", &json!(9091)));
    }
    let fields = [
        "service",
        "port",
        "timeout",
        "failOpen",
        "clearRouteCache",
        "statusOnError",
        "includeRequestBodyInCheck",
    ];
    has_only(&check["envoyExtAuthzGrpc"], &fields);
    assert_eq!(check["envoyExtAuthzGrpc"]["failOpen"], false);
    assert_eq!(check["envoyExtAuthzGrpc"]["statusOnError"], "503");
    let common = ["service", "port", "logName", "filterStateObjectsToLog"];
    has_only(&tcp["envoyTcpAls"], &common);
    let headers = [
        "additionalRequestHeadersToLog",
        "additionalResponseHeadersToLog",
        "additionalResponseTrailersToLog",
    ];
    has_only(&http["envoyHttpAls"], &[&common[..], &headers].concat());

    let policy = &of_kind(&documents, "AuthorizationPolicy");
    assert_eq!(policy["metadata"]["namespace"], "shop");
    let spec = json!({"action": "CUSTOM", "provider": {"name": check["name"]}, "rules": [{}]});
    assert_eq!(policy["spec"], spec);
    let logs = json!({"accessLogging": [{"providers": [{"name": http["name"]}, {"name": tcp["name"]}]}]});
    assert_eq!(of_kind(&documents, "Telemetry")["spec"], logs);

    let patches = of_kind(&documents, "EnvoyFilter")["spec"]["configPatches"].as_array().unwrap().clone();
    let [cluster, filter] = &patches[..] else { panic!("{patches:?}") };
    assert_eq!((&cluster["applyTo"], &filter["applyTo"]), (&json!("CLUSTER"), &json!("HTTP_FILTER")));
    assert_eq!(filter["patch"]["operation"], "INSERT_BEFORE");
    assert_eq!(filter["patch"]["value"]["typed_config"]["domain"], "shop/per-user");
    if is_there() {
        assert_eq!(Envoy::validate(&with(&cluster["patch"]["value"], &filter["patch"]["value"])), None);
    }
}

#[test]
fn resources_for_envoy_gateway_have_fields_of_its_api() {
    let address = "mixer-adapter.policy.svc.cluster.local:9091";
    let documents = documents(&["--gateway", "infra/eg", "--address", address]);
    let own = "gateway.envoyproxy.io/v1alpha1";
    assert_eq!(
        kinds(&documents),
        [
            (own, "SecurityPolicy"),
            (own, "EnvoyProxy"),
            ("gateway.networking.k8s.io/v1beta1", "ReferenceGrant"),
            (own, "EnvoyPatchPolicy"),
        ]
    );
    let backends = json!([{"name": "mixer-adapter", "namespace": "policy", "port": 9091}]);
    let gateway = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "eg"});

    // envoyproxy/gateway, api/v1alpha1/ext_auth_types.go: ExtAuth; shared_types.go: ClusterSettings; retry_types.go: Retry.
    let policy = of_kind(&documents, "SecurityPolicy");
    assert_eq!(policy["metadata"]["namespace"], "infra");
    assert_eq!(policy["spec"]["targetRefs"], json!([gateway]));
    let check = &policy["spec"]["extAuth"];
    has_only(check, &["grpc", "failOpen", "timeout", "bodyToExtAuth", "headersToExtAuth", "recomputeRoute"]);
    assert_eq!((&check["failOpen"], &check["grpc"]["backendRefs"]), (&json!(false), &backends));
    let settings = &check["grpc"]["backendSettings"];
    has_only(settings, &["retry", "circuitBreaker"]);
    has_only(&settings["retry"], &["numRetries", "retryOn", "perRetry"]);

    // accesslogging_types.go: ALSEnvoyProxyAccessLog.
    let proxy = of_kind(&documents, "EnvoyProxy");
    let sink = &proxy["spec"]["telemetry"]["accessLog"]["settings"][0]["sinks"][0];
    assert_eq!((&sink["type"], &sink["als"]["type"]), (&json!("ALS"), &json!("HTTP")));
    has_only(&sink["als"], &["backendRefs", "logName", "type", "http"]);
    has_only(&sink["als"]["http"], &["requestHeaders", "responseHeaders", "responseTrailers"]);
    assert_eq!(sink["als"]["backendRefs"], backends);
    assert_eq!(of_kind(&documents, "ReferenceGrant")["metadata"]["namespace"], "policy");

    // envoypatchpolicy_types.go: EnvoyPatchPolicySpec.
    let patches = &of_kind(&documents, "EnvoyPatchPolicy")["spec"];
    has_only(patches, &["type", "jsonPatches", "targetRef", "priority"]);
    assert_eq!((&patches["type"], &patches["targetRef"]), (&json!("JSONPatch"), &gateway));
    let [cluster, filter] = &patches["jsonPatches"].as_array().unwrap()[..] else { panic!("{patches}") };
    for patch in [cluster, filter] {
        has_only(patch, &["type", "name", "operation"]);
        has_only(&patch["operation"], &["op", "path", "value"]);
    }
    assert_eq!(filter["name"], "infra/eg/http");
    if is_there() {
        assert_eq!(
            Envoy::validate(&with(&cluster["operation"]["value"], &filter["operation"]["value"])),
            None
        );
    }
}
