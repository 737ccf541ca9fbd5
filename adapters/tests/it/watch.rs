//! The command `watch`.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, ChildStdout, Stdio},
};

use crate::support::{Server, binary, run};
use serde_json::{Value as Json, json};

fn rule(name: &str, condition: &str) -> String {
    format!(
        "---\napiVersion: config.istio.io/v1alpha2\nkind: rule\nmetadata: {{name: {name}, namespace: ns}}\nspec: {{match: '{condition}'}}\n"
    )
}

/// `source` of that directory.
fn serve(directory: &Path) -> Server {
    let ports = ["source", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error", "--config"];
    Server::spawn(binary().args(ports).arg(directory)).0
}

/// `watch` that goes on; killed when this is dropped.
struct Watching {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Watching {
    fn start(arguments: &[&str]) -> Self {
        let mut child = binary().arg("watch").args(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const RULES: &str = "istio/policy/v1beta1/rules";

/// A line without the version at its end, which is a digest.
fn versionless(line: &str) -> &str {
    line.rsplit_once(' ').unwrap().0
}

#[test]
fn changes_are_printed_as_they_come() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yaml");
    fs::write(&path, rule("a", "true") + &rule("b", "true")).unwrap();
    let source = serve(directory.path());
    let mut watching = Watching::start(&[&format!("mcp://{}", source.grpc), "--collection", "rules"]);
    assert_eq!(versionless(&watching.line()), format!("added   {RULES} ns/a"));
    assert_eq!(versionless(&watching.line()), format!("added   {RULES} ns/b"));
    fs::write(&path, rule("a", "false") + &rule("c", "true")).unwrap();
    assert_eq!(versionless(&watching.line()), format!("changed {RULES} ns/a"));
    assert_eq!(versionless(&watching.line()), format!("added   {RULES} ns/c"));
    assert_eq!(versionless(&watching.line()), format!("removed {RULES} ns/b"));
}

#[test]
fn once_ends_after_the_first_state_and_bodies_are_printed_where_wanted() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rules.yaml"), rule("a", "true")).unwrap();
    let source = serve(directory.path());
    let url = format!("mcp://{}", source.grpc);
    let ran = run(&["watch", &url, "--collection", "rules,handlers", "--once", "--json", "--full"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let mut events: Vec<Json> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    events.sort_by_key(|event| event["collection"].to_string());
    let fields = |event: &Json| (event["event"].clone(), event["collection"].clone(), event["name"].clone());
    assert_eq!(fields(&events[0]), (json!("empty"), json!("istio/policy/v1beta1/handlers"), Json::Null));
    assert_eq!(fields(&events[1]), (json!("added"), json!(RULES), json!("ns/a")));
    assert_eq!(events[1]["body"], json!({ "match": "true" }));

    let ran = run(&["watch", &url, "--count", "1", "--collection", "rules", "--full"]);
    assert_eq!(ran.code, 0);
    let (line, body) = ran.stdout.split_once('\n').unwrap();
    assert_eq!(versionless(line), format!("added   {RULES} ns/a"));
    assert_eq!(serde_json::from_str::<Json>(body).unwrap(), json!({ "match": "true" }));
}

#[test]
fn what_does_not_come_in_time_is_a_failure_and_files_are_no_server() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = run(&["watch", &format!("mcp://{nobody}"), "--once", "--timeout", "200ms"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(ran.stderr.contains("not all events arrived within 200ms"), "{}", ran.stderr);
    let ran = run(&["watch", "xds:///nonexistent", "--once", "--timeout", "200ms"]);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains("nothing can be read there yet"), "{}", ran.stderr);
    for scheme in ["mcp", "xds", "xds+http", "mcp+aggregated"] {
        let ran = run(&["watch", &format!("{scheme}://{nobody}"), "--certify"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
        let expected = format!("{scheme}://{nobody}: cannot connect: Connection refused");
        assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
    }
    let ran = run(&["watch", "config/"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("not the URL of a server"), "{}", ran.stderr);
    let ran = run(&["watch", "mcp://127.0.0.1:1", "--collection", "rulez"]);
    assert_eq!(ran.code, 2);
}

#[test]
fn every_form_prints_the_same_and_resources_of_envoy_are_printed_too() {
    let directory = tempfile::tempdir().unwrap();
    let cluster =
        "resources:\n- '@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: outbound|80\n";
    fs::write(directory.path().join("rules.yaml"), rule("a", "true")).unwrap();
    fs::write(directory.path().join("envoy.yaml"), cluster).unwrap();
    let source = serve(directory.path());
    for scheme in ["mcp", "xds", "xds+delta", "mcp+aggregated", "mcp+aggregated-delta"] {
        let url = format!("{scheme}://{}", source.grpc);
        let ran = run(&["watch", &url, "--collection", "rules", "--once", "--timeout", "20s"]);
        assert_eq!((ran.code, versionless(&ran.stdout)), (0, &*format!("added   {RULES} ns/a")), "{scheme}");
    }
    let url = format!("xds+delta://{}", source.grpc);
    let clusters = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    let ran =
        run(&["watch", &url, "--collection", clusters, "--once", "--json", "--full", "--timeout", "20s"]);
    let event = ran.json();
    assert_eq!((&event["event"], &event["name"]), (&json!("added"), &json!("outbound|80")));
    assert_eq!(event["body"], json!({ "@type": clusters, "name": "outbound|80" }));
}

/// The name of such a resource is in the envelope around it, in whole sets, too.
#[test]
fn resources_whose_message_has_no_name_keep_theirs_over_xds() {
    let directory = tempfile::tempdir().unwrap();
    let address = "resources:\n- '@type': type.googleapis.com/envoy.service.discovery.v3.Resource\n  name: shop/stock\n  resource:\n    \
                   '@type': type.googleapis.com/envoy.config.core.v3.SocketAddress\n    address: 10.0.0.1\n    port_value: 80\n";
    fs::write(directory.path().join("address.yaml"), address).unwrap();
    let source = serve(directory.path());
    let addresses = "type.googleapis.com/envoy.config.core.v3.SocketAddress";
    for scheme in ["xds", "xds+delta"] {
        let url = format!("{scheme}://{}", source.grpc);
        let ran = run(&["watch", &url, "--collection", addresses, "--once", "--timeout", "20s"]);
        let expected = "added   envoy.config.core.v3.SocketAddress shop/stock";
        assert_eq!((ran.code, versionless(&ran.stdout)), (0, expected), "{scheme}");
    }
}

#[test]
fn an_xdstp_name_or_glob_collection_is_asked_for_alone() {
    let directory = tempfile::tempdir().unwrap();
    let names =
        ["eu/a", "eu/b", "us/c"].map(|id| format!("xdstp://shop/envoy.config.cluster.v3.Cluster/{id}"));
    let clusters = names
        .each_ref()
        .map(|name| format!("'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: {name}\n"));
    fs::write(directory.path().join("envoy.yaml"), clusters.join("---\n")).unwrap();
    let source = serve(directory.path());
    let printed = |scheme: &str, name: &str| {
        let url = format!("{scheme}://{}", source.grpc);
        let ran = run(&["watch", &url, "--collection", name, "--once", "--json", "--timeout", "20s"]);
        assert_eq!((ran.code, &*ran.stderr), (0, ""));
        let events = ran.stdout.lines().map(|line| serde_json::from_str::<Json>(line).unwrap());
        events.map(|event| event["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for scheme in ["xds", "xds+delta", "xds+http"] {
        assert_eq!(printed(scheme, "xdstp://shop/envoy.config.cluster.v3.Cluster/eu/*"), names[..2]);
        assert_eq!(printed(scheme, &names[2]), names[2..]);
    }
    let ran = run(&["watch", &format!("mcp://{}", source.grpc), "--collection", &names[0]]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("xdstp names are for xds:// and xds+http:// servers"), "{}", ran.stderr);
}

/// `/org/team/subteam/basename`, `/namespace/name`, and `/name` of what belongs to no namespace; over MCP and xDS.
#[test]
fn names_of_any_depth_names_at_the_root_and_times_of_creation_go_over_the_wire() {
    let directory = tempfile::tempdir().unwrap();
    let resources = "apiVersion: networking.istio.io/v1alpha3\nkind: VirtualService\n\
                     metadata: {name: basename, namespace: org/team/subteam, creationTimestamp: '2019-07-01T10:00:00Z', labels: {a: b}}\n\
                     spec: {hosts: [x]}\n---\n\
                     apiVersion: rbac.istio.io/v1alpha1\nkind: ClusterRbacConfig\nmetadata: {name: default}\nspec: {mode: 'ON'}\n";
    fs::write(directory.path().join("resources.yaml"), resources).unwrap();
    let source = serve(directory.path());
    // As the documents name the collection.
    let services = "istio/networking/v1alpha3/VirtualService";
    for scheme in ["mcp", "xds", "xds+delta"] {
        let url = format!("{scheme}://{}", source.grpc);
        let event = |collection: &str| {
            let arguments = ["--collection", collection, "--once", "--json", "--full", "--timeout", "20s"];
            run(&[&["watch", &url], &arguments[..]].concat()).json()
        };
        let service = event(services);
        assert_eq!(service["name"], "org/team/subteam/basename", "{scheme}");
        assert_eq!(service["create_time"], "2019-07-01T10:00:00Z", "{scheme}");
        assert_eq!(service["labels"], json!({ "a": "b" }), "{scheme}");
        assert_eq!(event("istio/rbac/v1alpha1/clusterrbacconfigs")["name"], "default", "{scheme}");
    }
}

#[test]
fn the_state_of_a_server_is_written_as_files_that_serve_it_again() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("config");
    fs::create_dir(&config).unwrap();
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/config/sample.yaml");
    fs::copy(sample, config.join("sample.yaml")).unwrap();
    let cluster = "---\n'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: shop|80\nconnect_timeout: 1s\n";
    fs::write(config.join("clusters.yaml"), cluster).unwrap();
    let source = serve(&config);
    let written = directory.path().join("written");
    let target = written.to_str().unwrap();
    let mixers = format!("mcp://{}", source.grpc);
    let ran = run(&["watch", &mixers, "--once", "--write", target]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let validated =
        [config.join("sample.yaml").to_str().unwrap(), target].map(|path| run(&["validate", path]));
    assert_eq!((validated[0].code, validated[1].code), (0, 0), "{validated:?}");
    let resources = validated.map(|ran| ran.stdout.lines().last().unwrap().to_owned());
    assert_eq!(resources[0], resources[1]);
    let again = run(&["watch", &mixers, "--once", "--write", target]);
    assert!(again.code == 1 && again.stderr.contains("is not empty; name a new directory"), "{again:?}");

    let clusters = directory.path().join("clusters");
    let url = format!("xds://{}", source.grpc);
    let name = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    let arguments = ["watch", &url, "--collection", name, "--once", "--write", clusters.to_str().unwrap()];
    assert_eq!(run(&arguments).code, 0);
    let copy = serve(&clusters);
    let ran =
        run(&["watch", &format!("xds://{}", copy.grpc), "--collection", name, "--once", "--json", "--full"]);
    let event: Json = serde_json::from_str(ran.stdout.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&event["name"], &event["body"]["connectTimeout"]),
        (&json!("shop|80"), &json!("1s")),
        "{event}"
    );
}

#[test]
fn a_trace_has_times_and_acknowledgements() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rules.yaml"), rule("a", "true")).unwrap();
    let source = serve(directory.path());
    let url = format!("mcp://{}", source.grpc);
    let ran = run(&["watch", &url, "--collection", "rules", "--once", "--trace", "--sink-id", "someone"]);
    let times =
        regex::Regex::new(r"(?m)^(client -> server|server -> client): \d\d:\d\d:\d\d\.\d{3} ").unwrap();
    assert_eq!(times.find_iter(&ran.stdout).count(), ran.stdout.lines().count(), "{ran:?}");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(!lines[0].ends_with(" ACK") && lines[1].contains(" Resources (V="), "{lines:?}");
    assert!(lines[2].contains(" RequestResources (") && lines[2].ends_with(" ACK"), "{lines:?}");
}

#[test]
fn a_server_sees_the_id_of_a_watch() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("rules.yaml"), rule("a", "true")).unwrap();
    let source = serve(directory.path());
    for (scheme, flag) in [("mcp", "--sink-id"), ("xds", "--node-id")] {
        let url = format!("{scheme}://{}", source.grpc);
        let mut watching = Watching::start(&[&url, "--collection", "rules", flag, "night-shift"]);
        watching.line();
        source.until("/config", "night-shift");
    }
}
