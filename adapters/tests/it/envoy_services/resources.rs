//! The resources for Istio and Envoy Gateway that `envoy-config` prints: fields are those of the APIs.

use serde_json::{Value as Json, json};

use super::{
    mesh::{configured, envoy_config},
    support::{
        envoy::{Envoy, is_there},
        run,
    },
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

/// A bootstrap of a cluster and an HTTP filter alone, with further fields of its connection manager and its route.
fn with(cluster: &Json, filter: &Json, fields: &Json, route: &Json) -> String {
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
    });
    let merged = |mut one: Json, other: &Json| {
        let fields = other.as_object().unwrap().clone();
        one.as_object_mut().unwrap().extend(fields);
        one
    };
    let route = merged(json!({"match": {"prefix": "/"}, "direct_response": {"status": 200}}), route);
    let manager = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "front",
        "route_config": {"virtual_hosts": [{"name": "own", "domains": ["*"], "routes": [route]}]},
        "http_filters": [filter, router],
    });
    let manager = merged(manager, fields);
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

/// Limits by two quotas with a header each, one of them optional.
const QUOTAS: &str = r#"
kind: handler
metadata: {name: limits, namespace: istio-system}
spec:
  compiledAdapter: memquota
  params: {quotas: [{name: per-user, maxAmount: 2, validDuration: 60s}, {name: per-key, maxAmount: 2, validDuration: 60s}]}
---
kind: instance
metadata: {name: per-user, namespace: istio-system}
spec: {compiledTemplate: quota, params: {dimensions: {user: 'ratelimit.descriptor["user"]'}}}
---
kind: instance
metadata: {name: per-key, namespace: istio-system}
spec: {compiledTemplate: quota, params: {dimensions: {key: 'ratelimit.descriptor["key"] | "none"'}}}
---
kind: rule
metadata: {name: limits, namespace: istio-system}
spec: {actions: [{handler: limits, instances: [per-user, per-key]}]}
"#;

/// The filter in resources of a mesh. That of the bootstrap is tried by `each_of_two_quotas_limits_requests_with_its_header_alone`.
#[test]
fn descriptors_for_istio_and_envoy_gateway_have_the_headers_of_their_quotas() {
    let folder = configured(QUOTAS);
    let flags = ["--config", folder.path().to_str().unwrap(), "--descriptor", "user=x-user,key=x-key"];
    let print = |of: &str| -> Vec<Json> {
        serde_saphyr::from_multiple(&envoy_config(&[&[of], &flags[..]].concat())).unwrap()
    };
    let (istio, gateway) = (print("--istio"), print("--gateway"));
    let header = |key: &str, header: &str| json!({"descriptor_key": key, "header_name": header});
    let mut optional = header("key", "x-key");
    optional["skip_if_absent"] = json!(true);
    let patches = &of_kind(&istio, "EnvoyFilter")["spec"]["configPatches"];
    let of_gateway = &of_kind(&gateway, "EnvoyPatchPolicy")["spec"]["jsonPatches"][1]["operation"]["value"];
    for filter in [&patches[1]["patch"]["value"], &patches[3]["patch"]["value"], of_gateway] {
        let limits = filter["typed_config"]["rate_limits"].as_array().unwrap();
        let actions = limits.iter().flat_map(|limit| limit["actions"].as_array().unwrap());
        let headers: Vec<&Json> = actions.filter_map(|action| action.get("request_headers")).collect();
        assert_eq!((limits.len(), headers), (2, vec![&optional, &header("user", "x-user")]));
    }
    let flags = ["--istio", "--descriptor", "usre=x-user", flags[0], flags[1]];
    let ran = run(&[&["envoy-config"], &flags[..]].concat());
    assert!(ran.code == 2 && ran.stderr.contains("did you mean user?"), "{ran:?}");
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

    // networking/v1alpha3/envoy_filter.proto: the same for sidecars and gateways.
    let patches = of_kind(&documents, "EnvoyFilter")["spec"]["configPatches"].as_array().unwrap();
    let places =
        |patch: &Json| format!("{} {}", patch["match"]["context"], patch["applyTo"]).replace('"', "");
    let contexts = ["SIDECAR_INBOUND", "GATEWAY"];
    let expected =
        contexts.map(|context| ["NETWORK_FILTER", "HTTP_FILTER"].map(|kind| format!("{context} {kind}")));
    assert_eq!(patches.iter().map(places).collect::<Vec<_>>(), expected.concat());
    assert_eq!(patches[0]["patch"], patches[2]["patch"]);
    assert_eq!(patches[1]["patch"], patches[3]["patch"]);
    let (manager, filter) = (&patches[0]["patch"], &patches[1]["patch"]);
    assert_eq!((&manager["operation"], &filter["operation"]), (&json!("MERGE"), &json!("INSERT_BEFORE")));
    let filter = &filter["value"];
    assert_eq!(filter["typed_config"]["domain"], "shop/per-user");
    // Istio has a cluster for each port of a service, with its mutual TLS.
    let grpc = &filter["typed_config"]["rate_limit_service"]["grpc_service"]["envoy_grpc"]["cluster_name"];
    assert_eq!(grpc, "outbound|9091||mixer-adapter.istio-system.svc.cluster.local");

    let own = &documents.last().unwrap();
    assert_eq!(own["metadata"]["namespace"], "istio-system");
    let labels = json!({"labels": {"app.kubernetes.io/name": "mixer-adapter"}});
    assert_eq!(own["spec"]["workloadSelector"], labels);
    let patch = &own["spec"]["configPatches"][0];
    assert_eq!(patch["match"]["routeConfiguration"]["vhost"]["name"], "inbound|http|9091");
    if is_there() {
        let cluster = json!({"name": grpc, "type": "STATIC", "connect_timeout": "1s"});
        let bootstrap = with(&cluster, filter, &manager["value"]["typed_config"], &patch["patch"]["value"]);
        assert_eq!(Envoy::validate(&bootstrap), None);
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
    has_only(
        check,
        &[
            "grpc",
            "failOpen",
            "statusOnError",
            "timeout",
            "bodyToExtAuth",
            "headersToExtAuth",
            "recomputeRoute",
        ],
    );
    assert_eq!(check["statusOnError"], 503);
    // Envoy ends each try of such a call after the maximum of the waits between tries (docs/behaviour/envoy.md#deadlines).
    assert_eq!(
        check["timeout"],
        check["grpc"]["backendSettings"]["retry"]["perRetry"]["backOff"]["maxInterval"]
    );
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
        let values = (&cluster["operation"]["value"], &filter["operation"]["value"]);
        assert_eq!(Envoy::validate(&with(values.0, values.1, &json!({}), &json!({}))), None);
    }
    // gateway_types.go: with XDSNameSchemeV2 listeners are named after their ports.
    let flags = ["--gateway", "infra/eg", "--address", address, "--gateway-listener"];
    for (listener, name) in [("web", "infra/eg/web"), ("8080", "tcp-8080")] {
        let documents = self::documents(&[&flags[..], &[listener]].concat());
        let patches = &of_kind(&documents, "EnvoyPatchPolicy")["spec"]["jsonPatches"];
        assert_eq!(patches[1]["name"], name);
    }
}
