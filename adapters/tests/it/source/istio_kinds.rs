//! Resources of Istio, as the messages of their collections.

use std::{collections::BTreeMap, fs};

use serde_json::Value as Json;

use super::{Stream, config, start, support::run};

/// API version, kind, collection, message, a spec, and the spec on the wire by the field numbers of Istio's protos.
type KindExample = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static [u8]);

/// The kinds of Istio 1.1 to 1.7 that are not Mixer's.
const ISTIO_KINDS: [KindExample; 21] = [
    (
        "networking.istio.io/v1alpha3",
        "VirtualService",
        "networking/v1alpha3/virtualservices",
        "networking.v1alpha3.VirtualService",
        r#"{"hosts":["a"],"http":[{"timeout":"1s"}]}"#,
        b"\x0a\x01a\x1a\x04\x32\x02\x08\x01",
    ),
    (
        "networking.istio.io/v1beta1",
        "DestinationRule",
        "networking/v1alpha3/destinationrules",
        "networking.v1alpha3.DestinationRule",
        r#"{"host":"a","trafficPolicy":{"tls":{"mode":"ISTIO_MUTUAL"}}}"#,
        b"\x0a\x01a\x12\x04\x22\x02\x08\x03",
    ),
    (
        "networking.istio.io/v1alpha3",
        "Gateway",
        "networking/v1alpha3/gateways",
        "networking.v1alpha3.Gateway",
        r#"{"selector":{"app":"a"}}"#,
        b"\x12\x08\x0a\x03app\x12\x01a",
    ),
    (
        "networking.istio.io/v1alpha3",
        "ServiceEntry",
        "networking/v1alpha3/serviceentries",
        "networking.v1alpha3.ServiceEntry",
        r#"{"hosts":["a"],"resolution":"DNS"}"#,
        b"\x0a\x01a\x28\x02",
    ),
    (
        "networking.istio.io/v1alpha3",
        "Sidecar",
        "networking/v1alpha3/sidecars",
        "networking.v1alpha3.Sidecar",
        r#"{"egress":[{"hosts":["*/*"]}]}"#,
        b"\x1a\x05\x22\x03*/*",
    ),
    (
        "networking.istio.io/v1alpha3",
        "EnvoyFilter",
        "networking/v1alpha3/envoyfilters",
        "networking.v1alpha3.EnvoyFilter",
        r#"{"configPatches":[{"applyTo":"CLUSTER","patch":{"operation":"MERGE"}}]}"#,
        b"\x22\x06\x08\x08\x1a\x02\x08\x01",
    ),
    (
        "networking.istio.io/v1alpha3",
        "WorkloadEntry",
        "networking/v1alpha3/workloadentries",
        "networking.v1alpha3.WorkloadEntry",
        r#"{"address":"a","weight":5}"#,
        b"\x0a\x01a\x30\x05",
    ),
    (
        "networking.istio.io/v1alpha3",
        "WorkloadGroup",
        "networking/v1alpha3/workloadgroups",
        "networking.v1alpha3.WorkloadGroup",
        r#"{"template":{"serviceAccount":"a"}}"#,
        b"\x12\x03\x3a\x01a",
    ),
    (
        "security.istio.io/v1beta1",
        "AuthorizationPolicy",
        "security/v1beta1/authorizationpolicies",
        "security.v1beta1.AuthorizationPolicy",
        r#"{"action":"DENY"}"#,
        b"\x18\x01",
    ),
    (
        "security.istio.io/v1beta1",
        "PeerAuthentication",
        "security/v1beta1/peerauthentications",
        "security.v1beta1.PeerAuthentication",
        r#"{"mtls":{"mode":"STRICT"}}"#,
        b"\x12\x02\x08\x03",
    ),
    (
        "security.istio.io/v1beta1",
        "RequestAuthentication",
        "security/v1beta1/requestauthentications",
        "security.v1beta1.RequestAuthentication",
        r#"{"jwtRules":[{"issuer":"a"}]}"#,
        b"\x12\x03\x0a\x01a",
    ),
    (
        "authentication.istio.io/v1alpha1",
        "Policy",
        "authentication/v1alpha1/policies",
        "authentication.v1alpha1.Policy",
        r#"{"peers":[{"mtls":{"mode":"PERMISSIVE"}}]}"#,
        b"\x12\x04\x0a\x02\x10\x01",
    ),
    (
        "authentication.istio.io/v1alpha1",
        "MeshPolicy",
        "authentication/v1alpha1/meshpolicies",
        "authentication.v1alpha1.Policy",
        r#"{"peers":[{"mtls":{}}]}"#,
        b"\x12\x02\x0a\x00",
    ),
    (
        "rbac.istio.io/v1alpha1",
        "RbacConfig",
        "rbac/v1alpha1/rbacconfigs",
        "rbac.v1alpha1.RbacConfig",
        r#"{"mode":"ON_WITH_INCLUSION"}"#,
        b"\x08\x02",
    ),
    (
        "rbac.istio.io/v1alpha1",
        "ClusterRbacConfig",
        "rbac/v1alpha1/clusterrbacconfigs",
        "rbac.v1alpha1.RbacConfig",
        r#"{"mode":"ON"}"#,
        b"\x08\x01",
    ),
    (
        "rbac.istio.io/v1alpha1",
        "ServiceRole",
        "rbac/v1alpha1/serviceroles",
        "rbac.v1alpha1.ServiceRole",
        r#"{"rules":[{"services":["a"]}]}"#,
        b"\x0a\x03\x0a\x01a",
    ),
    (
        "rbac.istio.io/v1alpha1",
        "ServiceRoleBinding",
        "rbac/v1alpha1/servicerolebindings",
        "rbac.v1alpha1.ServiceRoleBinding",
        r#"{"roleRef":{"name":"a"}}"#,
        b"\x12\x03\x12\x01a",
    ),
    (
        "config.istio.io/v1alpha2",
        "HTTPAPISpec",
        "config/v1alpha2/httpapispecs",
        "mixer.v1.config.client.HTTPAPISpec",
        r#"{"patterns":[{"httpMethod":"GET","uriTemplate":"/a"}]}"#,
        b"\x12\x09\x12\x03GET\x1a\x02/a",
    ),
    (
        "config.istio.io/v1alpha2",
        "HTTPAPISpecBinding",
        "config/v1alpha2/httpapispecbindings",
        "mixer.v1.config.client.HTTPAPISpecBinding",
        r#"{"services":[{"name":"a"}]}"#,
        b"\x0a\x03\x0a\x01a",
    ),
    (
        "config.istio.io/v1alpha2",
        "QuotaSpec",
        "mixer/v1/config/client/quotaspecs",
        "mixer.v1.config.client.QuotaSpec",
        r#"{"rules":[{"quotas":[{"quota":"a","charge":"1"}]}]}"#,
        b"\x0a\x07\x12\x05\x0a\x01a\x10\x01",
    ),
    (
        "config.istio.io/v1alpha2",
        "QuotaSpecBinding",
        "mixer/v1/config/client/quotaspecbindings",
        "mixer.v1.config.client.QuotaSpecBinding",
        r#"{"quotaSpecs":[{"name":"a"}]}"#,
        b"\x12\x03\x0a\x01a",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_istio_is_served_as_the_type_of_its_collection_without_descriptors() {
    let directory = tempfile::tempdir().unwrap();
    for (version, kind, _, _, spec, _) in ISTIO_KINDS {
        let document = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: a}}\nspec: {spec}\n");
        fs::write(directory.path().join(format!("{kind}.yaml")), document).unwrap();
    }
    let server = start(directory.path(), &[]);
    let mut sink = Stream::open(&server).await;
    for (_, _, collection, message, _, bytes) in ISTIO_KINDS {
        sink.send(&format!("istio/{collection}"), "", None).await;
        let body = sink.resources().await.resources.remove(0).body.unwrap();
        assert_eq!(body.type_url, format!("type.googleapis.com/istio.{message}"));
        assert_eq!(&*body.value, bytes, "{message}");
    }
    assert_eq!(config(&server, |_| true)["faults"], serde_json::json!([]));

    let url = format!("mcp://{}", server.grpc);
    let collections = ISTIO_KINDS.map(|(_, _, collection, ..)| format!("istio/{collection}"));
    let watched = run(&["watch", &url, "--collection", &collections.join(","), "--once", "--json", "--full"]);
    let printed = watched.stdout.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
    let mut printed: BTreeMap<String, Json> = printed
        .map(|event| (event["collection"].as_str().unwrap().to_owned(), event["body"].clone()))
        .collect();
    for (_, _, collection, message, spec, _) in ISTIO_KINDS {
        let mut expected: Json = serde_json::from_str(spec).unwrap();
        expected["@type"] = format!("type.googleapis.com/istio.{message}").into();
        assert_eq!(printed.remove(&format!("istio/{collection}")), Some(expected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_field_of_an_istio_resource_is_a_fault_with_its_line_and_a_kind_without_type_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let gateway = "apiVersion: networking.istio.io/v1alpha3\nkind: Gateway\nmetadata: {name: g, namespace: ns}\nspec:\n  selectr: {app: a}\n";
    let telemetry = "apiVersion: telemetry.istio.io/v1alpha1\nkind: Telemetry\nmetadata: {name: t, namespace: ns}\nspec: {}\n";
    fs::write(directory.path().join("gateway.yaml"), gateway).unwrap();
    fs::write(directory.path().join("telemetry.yaml"), telemetry).unwrap();
    let server = start(directory.path(), &[]);
    let faults = config(&server, |json| json["faults"].as_array().is_some_and(|faults| faults.len() == 2));
    let faults = faults["faults"].to_string();
    assert!(
        faults.contains("gateway.yaml:5: g.Gateway.ns: spec.selectr: no such field; did you mean selector?"),
        "{faults}"
    );
    assert!(faults.contains("istio.telemetry.v1alpha1.Telemetry, whose descriptors"), "{faults}");
}

/// `directResponse` came with Istio 1.14.
#[tokio::test(flavor = "multi_thread")]
async fn fields_of_a_later_release_of_istio_are_served_as_a_struct_with_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let service = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: v, namespace: ns}\nspec:\n  \
                   hosts: [a]\n  http:\n  - directResponse: {status: 503}\n";
    fs::write(directory.path().join("service.yaml"), service).unwrap();
    let server = start(directory.path(), &[]);
    let mut sink = Stream::open(&server).await;
    sink.send("istio/networking/v1alpha3/virtualservices", "", None).await;
    let body = sink.resources().await.resources.remove(0).body.unwrap();
    assert_eq!(body.type_url, "type.googleapis.com/google.protobuf.Struct");
    let faults = config(&server, |json| json["faults"].as_array().is_some_and(|faults| !faults.is_empty()));
    let faults = faults["faults"].to_string();
    let expected = "service.yaml:7: warning: v.VirtualService.ns: spec.http[0].directResponse: is not a field of \
                    istio.networking.v1alpha3.VirtualService in Istio 1.1 to 1.7: the resource is served as google.protobuf.Struct";
    assert!(faults.contains(expected), "{faults}");
}
