//! The program configured by MCP.

use std::{fs, net::SocketAddr, sync::mpsc, time::Duration};

use crate::support::{Server, binary, eventually, run};
use mixer_adapter::tonic::service::Routes;
use mixer_adapter_config::source::FileSource;
use mixer_adapter_streams::{
    Types,
    mcp::source,
    stream::{
        DialOptions, Peer, listen,
        source::{Catalogue, ConfigServer, ConfigServerOptions, feed},
    },
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Serves that directory in a runtime of its own, until the second is dropped.
fn serve(directory: &std::path::Path) -> (SocketAddr, DropGuard) {
    let files = FileSource::new(directory, "istio-system");
    let stop = CancellationToken::new();
    let (bound, address) = mpsc::sync_channel(1);
    let stopped = stop.clone();
    std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let source = ConfigServer::new(Catalogue::default(), ConfigServerOptions::default());
            tokio::spawn(feed(source.clone(), files, Types::default()));
            while source.catalogue().collections().count() < 6 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            bound.send(listener.local_addr().unwrap()).unwrap();
            let services = source::mount(Routes::default(), &source, &source::default_options());
            listen(listener, services, stopped).await;
        });
    });
    (address.recv().unwrap(), stop.drop_guard())
}

#[test]
fn the_server_takes_its_configuration_from_a_source_and_follows_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.yaml");
    let sample = include_str!("../../config/sample.yaml");
    fs::write(&path, sample).unwrap();
    let (address, _source) = serve(directory.path());
    let server = Server::start(&["--config", &format!("mcp://{address}")]);
    server.until("/readyz", "200 OK");
    server.until("/config", "\"rejected\":0");

    let more = "\n---\napiVersion: config.istio.io/v1alpha2\nkind: rule\nmetadata: {name: one-more, namespace: istio-system}\nspec: {match: \"false\", actions: [{handler: closed-paths, instances: [path]}]}\n";
    fs::write(&path, format!("{sample}{more}")).unwrap();
    server.until("/config", "\"applied\":2");
    server.until("/config", "\"rejected\":0");
}

/// Serves the sample with a faulty rule over that protocol, and then without the fault.
fn a_faulty_first_push_allows_nothing(scheme: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.yaml");
    fs::write(&path, SAMPLE.replace("match: ", "match: request.paht == \"/\" || ")).unwrap();
    let ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error"];
    let source = Server::spawn(binary().arg("source").arg(directory.path()).args(ports)).0;
    let server = Server::start(&["--config", &format!("{scheme}://{}", source.grpc)]);
    server.until("/readyz", "request.paht");
    assert!(server.get("/readyz").contains("503 Service Unavailable"), "{scheme}: {}", server.get("/readyz"));
    let check = || run(&["check", "request.path=/admin", "--address", &server.grpc, "--timeout", "300ms"]);
    let unavailable = check();
    assert!(unavailable.code == 1 && unavailable.stderr.contains("UNAVAILABLE"), "{scheme}: {unavailable:?}");
    fs::write(&path, SAMPLE).unwrap();
    server.until("/readyz", "200 OK");
    assert!(check().stdout.starts_with("denied: "), "{scheme}: {:?}", check());
}

#[test]
fn a_faulty_first_push_allows_nothing_over_any_protocol() {
    let schemes = ["mcp", "xds", "xds+delta", "xds+http", "mcp+aggregated", "mcp+aggregated-delta"];
    std::thread::scope(|scope| {
        for scheme in schemes {
            scope.spawn(move || a_faulty_first_push_allows_nothing(scheme));
        }
    });
}

#[test]
fn a_source_that_is_gone_is_a_warning_with_its_error() {
    let directory = part(&["handler", "instance", "rule"]);
    let (address, source) = serve(directory.path());
    let url = format!("mcp://{address}");
    let server = Server::start(&["--config", &url]);
    server.until("/readyz", "200 OK");
    assert!(!server.get("/readyz").contains("warning"), "{}", server.get("/readyz"));
    drop(source);
    server.until("/readyz", &format!("warning: {url} has not been connected for "));
    let ready = server.get("/readyz");
    assert!(ready.contains("200 OK"), "what it delivered stays in use: {ready}");
    server.until("/status", &format!("{url} has not been connected for "));
    server.until("/config", "\"last_error\":{\"error\":\"Unavailable: ");
}

const SAMPLE: &str = include_str!("../../config/sample.yaml");

/// A directory with a part of the sample: the documents of these kinds.
fn part(kinds: &[&str]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let of_kind = |document: &&str| kinds.iter().any(|kind| document.contains(&format!("\nkind: {kind}\n")));
    let documents: Vec<&str> = SAMPLE.split("\n---\n").filter(of_kind).collect();
    assert!(!documents.is_empty());
    fs::write(directory.path().join("part.yaml"), documents.join("\n---\n")).unwrap();
    directory
}

#[test]
fn a_restart_without_its_source_serves_the_cached_configuration() {
    let (directory, cache) = (part(&["handler", "instance", "rule"]), tempfile::tempdir().unwrap());
    let cached = cache.path().join("made/when/needed");
    let (address, source) = serve(directory.path());
    let url = format!("mcp://{address}");
    let arguments = ["--config", &url, "--config-cache", cached.to_str().unwrap()];
    let server = Server::start(&arguments);
    server.until("/readyz", "200 OK");
    let is_whole = |file: &fs::DirEntry| file.path().extension().is_some_and(|end| end == "mcp");
    let files = || fs::read_dir(&cached).unwrap().map(Result::unwrap).filter(is_whole).count();
    eventually("the cache is written", || (files() == 6).then_some(()));
    drop((server, source));
    let again = Server::start(&arguments);
    again.until("/readyz", "200 OK");
    again.until("/config", "\"synced\":false");
    let denied = run(&["check", "--address", &again.grpc, "--attributes", "request.path=/admin"]);
    assert!(denied.stdout.contains("PERMISSION_DENIED"), "{denied:?}");
}

#[test]
fn collections_come_from_several_sources_and_readiness_says_which_are_missing() {
    let (rules, rest) = (part(&["rule"]), part(&["handler", "instance"]));
    let late = tempfile::tempdir().unwrap();
    let (address, _source) = serve(late.path());
    let mcp = format!("mcp://{address}?collections=istio/none,rules");
    let rest_path = rest.path().to_str().unwrap();
    let server = Server::start(&["--config", rest_path, "--config", &mcp]);
    server.until("/readyz", "istio/none");
    assert!(server.get("/healthz").contains("200 OK"), "alive all the same");
    drop(server);
    let server = Server::start(&["--config", rest_path, "--config", &mcp, "--config-optional", "istio/none"]);
    server.until("/readyz", "200 OK");
    server.until("/config", "\"istio/policy/v1beta1/handlers\":3");
    fs::copy(rules.path().join("part.yaml"), late.path().join("part.yaml")).unwrap();
    server.until("/config", "\"istio/policy/v1beta1/rules\":3");
    server.until("/config", &format!("\"source\":\"mcp://{address}\""));
}

/// A server that accepts connections and says nothing.
fn silent() -> (std::net::TcpListener, SocketAddr) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

#[test]
fn readiness_names_only_what_is_missing_its_source_and_since_when() {
    let rest = part(&["handler", "instance"]);
    let (_listener, address) = silent();
    for scheme in ["mcp", "xds", "xds+delta"] {
        let source = format!("{scheme}://{address}");
        let rules = format!("{source}?collections=rules");
        let server = Server::start(&["--config", rest.path().to_str().unwrap(), "--config", &rules]);
        let before = format!("\r\n\r\nwaiting for: istio/policy/v1beta1/rules from {source} (for ");
        let waited = || -> Option<u64> {
            let answer = server.get("/readyz");
            assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
            answer.split_once(&before)?.1.strip_suffix(" s)\n")?.parse().ok()
        };
        let first = eventually("the rules alone are named", waited);
        eventually("the time goes on", || waited().filter(|seconds| *seconds > first));
    }
}

#[test]
fn a_collection_that_the_source_does_not_have_counts_as_empty_with_a_warning() {
    let directory = part(&["handler", "instance", "rule"]);
    let (address, _source) = serve(directory.path());
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut serve = crate::support::binary();
    let url = format!("mcp://{address}?collections=istio/none,handlers,instances,rules");
    let arguments =
        ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "warn", "--config", &url];
    let (server, _) = Server::spawn(serve.args(arguments).stderr(log.reopen().unwrap()));
    server.until("/readyz", "200 OK");
    server.until("/config", "\"unsupported\":true");
    let log = fs::read_to_string(log.path()).unwrap();
    let warning = "the source does not serve this collection, which counts as empty";
    assert!(log.lines().any(|line| line.contains(warning) && line.contains("istio/none")), "{log}");
}

#[test]
fn two_sources_for_one_collection_are_a_usage_error() {
    let ran = run(&["serve", "--config", "conf", "--config", "mcp://127.0.0.1:1"]);
    assert_eq!(ran.code, 2);
    assert!(ran.stderr.contains("fs://conf and mcp://127.0.0.1:1 are both for all collections"), "{ran:?}");
}

#[test]
fn a_source_that_dials_configures_the_server() {
    let directory = part(&["handler", "instance", "rule"]);
    let (server, printed) = Server::start_and_print(&["--mcp-listen", "0"]);
    let address = printed.split("Sources of configuration can connect to ").nth(1).unwrap();
    let address = address.split_whitespace().next().unwrap().to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    server.until("/readyz", "istio/policy/v1beta1/rules");
    let files = FileSource::new(directory.path(), "istio-system");
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let dialing = std::thread::spawn(move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let source = ConfigServer::new(Catalogue::default().open(), ConfigServerOptions::default());
            tokio::spawn(feed(source.clone(), files, Types::default()));
            source::dial(source, Peer::new(address), DialOptions::default(), stopped).await;
        });
    });
    server.until("/readyz", "200 OK");
    server.until("/config", "\"istio/policy/v1beta1/rules\":3");
    stop.cancel();
    dialing.join().unwrap();
}

#[test]
fn what_became_of_pushes_is_in_the_status_the_metrics_and_once_in_the_log() {
    let directory = part(&["handler", "instance", "rule"]);
    let mut source = crate::support::binary();
    let ports = ["source", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error", "--config"];
    let (source, _) = Server::spawn(source.args(ports).arg(directory.path()));
    let mut serve = crate::support::binary();
    let log = tempfile::NamedTempFile::new().unwrap();
    let url = format!("mcp://{}", source.grpc);
    let ports =
        ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "warn", "--config", &url];
    let (server, _) = Server::spawn(serve.args(ports).stderr(log.reopen().unwrap()));
    server.until("/readyz", "200 OK");
    let broken = "apiVersion: config.istio.io/v1alpha2\nkind: rule\nmetadata: {name: one-more, namespace: istio-system}\nspec: {match: \"no.such == 1\", actions: [{handler: closed-paths, instances: [path]}]}\n";
    fs::write(directory.path().join("more.yaml"), broken).unwrap();
    server.until("/config", "\"kind\":\"nack\"");
    let config = server.get("/config");
    let json: serde_json::Value = serde_json::from_str(config.split_once("\r\n\r\n").unwrap().1).unwrap();
    let shown = &json["sources"][0];
    assert_eq!((&shown["source"], &shown["peers"][0]), (&url.as_str().into(), &url.as_str().into()));
    assert!(shown["id"].as_str().unwrap().starts_with("mixer-adapter"));
    let rules = shown["collections"].as_array().unwrap().iter();
    let rules = rules.clone().find(|of| of["collection"] == "istio/policy/v1beta1/rules").unwrap();
    assert_eq!((&rules["resources"], &rules["synced"]), (&3.into(), &true.into()));
    let reason = rules["refused"]["reason"].as_str().unwrap();
    assert!(reason.contains("one-more") && reason.contains("no.such"), "{reason}");
    assert!(rules["accepted_seconds_ago"].as_u64().is_some());
    assert!(shown["messages"].as_array().unwrap().len() <= 32);
    let nacks = "istio_mcp_request_nacks_total{component=\"SIDE\",collection=\"istio/policy/v1beta1/rules\",code=\"INVALID_ARGUMENT\"} 1\n";
    server.until("/metrics", &nacks.replace("SIDE", "mixer"));
    source.until("/metrics", &nacks.replace("SIDE", "source"));
    for (of, side) in [(&server, "mixer"), (&source, "source")] {
        let metrics = of.get("/metrics");
        for expected in [
            "istio_mcp_clients_total{component=\"SIDE\"} 1\n",
            "istio_mcp_reconnections{component=\"SIDE\"} 1\n",
            "istio_mcp_request_acks_total{component=\"SIDE\",collection=\"istio/policy/v1beta1/rules\"} 1\n",
            "istio_mcp_message_sizes_bytes_count{component=\"SIDE\",collection=\"istio/policy/v1beta1/rules\"} ",
        ] {
            let expected = expected.replace("SIDE", side);
            assert!(metrics.contains(&expected), "{expected} in {metrics}");
        }
    }
    // The source ends: the stream fails, and no client is connected.
    drop(source);
    server.until("/metrics", "istio_mcp_recv_failures_total{component=\"mixer\",code=\"");
    server.until("/metrics", "istio_mcp_clients_total{component=\"mixer\"} 0\n");
    let log = fs::read_to_string(log.path()).unwrap();
    assert_eq!(log.matches("push rejected: istio/policy/v1beta1/rules").count(), 1, "{log}");
}

/// A rule that needs a handler, and the handler, each for one source.
const LATE_RULE: &str = "apiVersion: config.istio.io/v1alpha2\nkind: rule\nmetadata: {name: late, namespace: istio-system}\nspec: {match: \"true\", actions: [{handler: late, instances: [path]}]}\n";
const LATE_HANDLER: &str = "apiVersion: config.istio.io/v1alpha2\nkind: handler\nmetadata: {name: late, namespace: istio-system}\nspec: {compiledAdapter: noop}\n";

#[test]
fn what_one_source_was_refused_for_is_taken_when_another_brings_what_was_missing() {
    for (served, kind, here) in [("rules", "rule", "handler"), ("handlers", "handler", "rule")] {
        let (theirs, ours) = (part(&[kind]), part(&["instance", here]));
        let (address, _source) = serve(theirs.path());
        let mcp = format!("mcp://{address}?collections={served}");
        let server = Server::start(&["--config", ours.path().to_str().unwrap(), "--config", &mcp]);
        server.until("/readyz", "200 OK");
        let (rule, handler) = if kind == "rule" { (&theirs, &ours) } else { (&ours, &theirs) };
        fs::write(rule.path().join("late.yaml"), LATE_RULE).unwrap();
        server.until("/config", "\"refused\":{\"version\"");
        fs::write(handler.path().join("late.yaml"), LATE_HANDLER).unwrap();
        server.until("/config", "\"istio/policy/v1beta1/rules\":4");
        server.until("/config", "\"refusal\":[]");
        assert!(!server.get("/config").contains("\"refused\":{\"version\""), "{served}");
    }
}

/// A handler that denies with its name, and a rule that uses the handler.
fn denier(name: &str) -> String {
    format!(
        "apiVersion: config.istio.io/v1alpha2\nkind: handler\nmetadata: {{name: {name}, namespace: istio-system}}\n\
         spec: {{compiledAdapter: denier, params: {{status: {{code: 7, message: denied by {name}}}}}}}\n"
    )
}

fn rule_of(handler: &str) -> String {
    format!(
        "apiVersion: config.istio.io/v1alpha2\nkind: rule\nmetadata: {{name: r, namespace: istio-system}}\n\
         spec: {{actions: [{{handler: {handler}, instances: [nothing]}}]}}\n"
    )
}

const INSTANCE: &str = "apiVersion: config.istio.io/v1alpha2\nkind: instance\nmetadata: {name: nothing, namespace: istio-system}\n\
    spec: {compiledTemplate: checknothing}\n";

/// Renames a handler and then its use, with time in between, so that each change is refused by itself, and back in the other order.
fn a_rename_converges(handler: impl Fn(&str), rule: impl Fn(&str), configs: &[&str]) {
    let arguments: Vec<&str> = configs.iter().flat_map(|config| ["--config", config]).collect();
    let server = Server::start(&arguments);
    server.until("/readyz", "200 OK");
    let denied_by = |handler: &str| {
        let text = format!("denied by {handler}");
        let is_denied = || run(&["check", "--address", &server.grpc]).stdout.contains(&text);
        eventually(&format!("{configs:?} {text}"), || is_denied().then_some(()));
    };
    denied_by("a");
    handler("b");
    server.until("/config", "there is no handler a");
    denied_by("a");
    rule("b");
    denied_by("b");
    server.until("/config", "\"refusal\":[]");
    assert!(!server.get("/config").contains("\"refused\":{\"version\""), "{configs:?}: shown as live");
    rule("a");
    server.until("/config", "there is no handler a");
    denied_by("b");
    handler("a");
    denied_by("a");
}

/// The same with files of resources.
fn a_rename_in_files_converges(handlers: &std::path::Path, rules: &std::path::Path, configs: &[&str]) {
    let handler = |name: &str| fs::write(handlers, denier(name)).unwrap();
    let rule = |name: &str| fs::write(rules, rule_of(name)).unwrap();
    a_rename_converges(handler, rule, configs);
}

#[test]
fn a_rename_that_is_refused_twice_converges_in_every_form() {
    let schemes =
        ["mcp", "xds", "xds+delta", "mcp+aggregated", "mcp+aggregated-delta"].map(|scheme| (scheme, ""));
    for (scheme, settings) in schemes.into_iter().chain([("xds+http", "?refresh_delay=100ms")]) {
        let directory = tempfile::tempdir().unwrap();
        let [handlers, rules] = ["handlers.yaml", "rules.yaml"].map(|name| directory.path().join(name));
        fs::write(&handlers, denier("a")).unwrap();
        fs::write(directory.path().join("instance.yaml"), INSTANCE).unwrap();
        fs::write(&rules, rule_of("a")).unwrap();
        let ports =
            ["source", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error", "--config"];
        let (source, _) = Server::spawn(crate::support::binary().args(ports).arg(directory.path()));
        a_rename_in_files_converges(&handlers, &rules, &[&format!("{scheme}://{}{settings}", source.grpc)]);
    }
}

/// A file with an xDS response that holds one resource, moved to its place.
fn move_response(directory: &std::path::Path, kind: &str, name: &str, message: &str, spec: &str) {
    let response = format!(
        "type_url: config.istio.io/v1alpha2/{kind}\nresources:\n- '@type': type.googleapis.com/istio.mcp.v1alpha1.Resource\n  \
         metadata: {{name: istio-system/{name}}}\n  body: {{'@type': type.googleapis.com/istio.policy.v1beta1.{message}, {spec}}}\n"
    );
    let unfinished = directory.join(format!(".{kind}"));
    fs::write(&unfinished, response).unwrap();
    fs::rename(unfinished, directory.join(format!("{kind}.yaml"))).unwrap();
}

#[test]
fn a_rename_that_is_refused_twice_converges_with_files_of_xds_responses() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let handler = |name: &str| {
        let params = format!("params: {{status: {{code: 7, message: denied by {name}}}}}");
        move_response(path, "handler", name, "Handler", &format!("compiledAdapter: denier, {params}"));
    };
    let rule = |handler: &str| {
        move_response(
            path,
            "rule",
            "r",
            "Rule",
            &format!("actions: [{{handler: {handler}, instances: [nothing]}}]"),
        );
    };
    handler("a");
    rule("a");
    move_response(path, "instance", "nothing", "Instance", "compiledTemplate: checknothing");
    let url = format!("xds://{}?collections=handlers,instances,rules", path.display());
    a_rename_converges(handler, rule, &[&url]);
}

#[test]
fn a_rename_that_is_refused_twice_converges_with_files_and_with_several_sources() {
    let [theirs, ours] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [handlers, rules] = [theirs.path().join("handlers.yaml"), ours.path().join("rules.yaml")];
    fs::write(ours.path().join("instance.yaml"), INSTANCE).unwrap();
    fs::write(&handlers, denier("a")).unwrap();
    fs::write(&rules, rule_of("a")).unwrap();
    let (address, _source) = serve(theirs.path());
    let ours = ours.path().to_str().unwrap();
    a_rename_in_files_converges(&handlers, &rules, &[ours, &format!("mcp://{address}?collections=handlers")]);
    let theirs = format!("{}?collections=handlers", theirs.path().display());
    a_rename_in_files_converges(&handlers, &rules, &[ours, &theirs]);
}

/// A directory with a handler, an instance and a rule that denies everything.
fn denying() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    write("handlers.yaml", &denier("a"));
    write("instance.yaml", INSTANCE);
    write("rules.yaml", &rule_of("a"));
    directory
}

#[test]
fn an_update_that_removes_everything_is_not_applied_and_it_is_shown_and_counted() {
    for served in [false, true] {
        let directory = denying();
        let ports =
            ["source", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error", "--config"];
        let (source, _) = Server::spawn(crate::support::binary().args(ports).arg(directory.path()));
        let url = if served {
            format!("mcp://{}", source.grpc)
        } else {
            directory.path().to_str().unwrap().to_owned()
        };
        let start = |arguments: &[&str]| {
            let server = Server::start(&[&["--config", &url], arguments].concat());
            server.until("/readyz", "200 OK");
            server
        };
        let (protected, allowing) = (start(&[]), start(&["--allow-empty"]));
        for file in fs::read_dir(directory.path()).unwrap() {
            fs::remove_file(file.unwrap().path()).unwrap();
        }
        protected.until("/config", "has no resources any more");
        protected.until("/metrics", "mixer_adapter_config_losses_total 1");
        let check = |server: &Server| run(&["check", "--address", &server.grpc]).stdout;
        assert!(check(&protected).contains("denied by a"), "{url}");
        allowing.until("/readyz", "200 OK");
        allowing.until("/readyz", "warning: the configuration is empty");
        assert!(allowing.get("/status").contains(r#""warnings":["the configuration is empty"#));
        assert!(!check(&allowing).contains("denied"), "{url}");
    }
}

#[test]
fn rules_that_are_removed_while_the_rest_stays_are_applied_with_a_warning() {
    let directory = denying();
    let (address, _source) = serve(directory.path());
    let server = Server::start(&["--config", &format!("mcp://{address}"), "--empty-delay", "100ms"]);
    server.until("/readyz", "200 OK");
    fs::remove_file(directory.path().join("rules.yaml")).unwrap();
    server.until("/readyz", "warning: the configuration has no rules");
}

#[test]
fn a_start_with_nothing_at_all_warns() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&["--config", directory.path().to_str().unwrap()]);
    server.until("/readyz", "ready\nwarning: the configuration is empty, and every check is allowed\n");
}

#[test]
fn flags_say_who_the_sink_is_and_ask_for_legacy_collections() {
    let directory = denying();
    let ports = ["source", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error", "--config"];
    let (source, _) = Server::spawn(crate::support::binary().args(ports).arg(directory.path()));
    let url = format!("mcp://{}", source.grpc);
    let identity = ["--sink-id", "somebody", "--sink-annotation", "cluster=east", "--legacy-collections"];
    let server = Server::start(&[&["--config", &url], &identity[..]].concat());
    server.until("/readyz", "200 OK");
    source.until("/config", "\"id\":\"somebody\"");
    source.until("/config", "\"cluster\":\"east\"");
    server.until("/config", "istio/config/v1alpha2/legacy/deniers");
    drop(server);
    let url = format!("xds://{}", source.grpc);
    let node = ["--node-id", "a-node", "--node-metadata", "cluster=east", "--max-redial-wait", "5s"];
    let server = Server::start(&[&["--config", &url], &node[..]].concat());
    server.until("/readyz", "200 OK");
    source.until("/config", "\"id\":\"a-node\"");
}

#[test]
fn a_source_names_files_below_the_file_root_only_unless_it_is_trusted() {
    let (directory, logs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = logs.path().join("a.log");
    let configuration = format!(
        "apiVersion: config.istio.io/v1alpha2\nkind: handler\nmetadata: {{name: log, namespace: istio-system}}\n\
         spec: {{compiledAdapter: stdio, params: {{log_stream: FILE, output_path: {path:?}}}}}\n---\n\
         apiVersion: config.istio.io/v1alpha2\nkind: instance\nmetadata: {{name: line, namespace: istio-system}}\n\
         spec: {{compiledTemplate: logentry, params: {{severity: '\"INFO\"'}}}}\n---\n\
         apiVersion: config.istio.io/v1alpha2\nkind: rule\nmetadata: {{name: log, namespace: istio-system}}\n\
         spec: {{actions: [{{handler: log, instances: [line]}}]}}\n"
    );
    fs::write(directory.path().join("log.yaml"), configuration).unwrap();
    let (address, _source) = serve(directory.path());
    let url = format!("mcp://{address}");
    let server = Server::start(&["--config", &url]);
    server.until("/config", "--file-root, which is not set");
    assert!(!path.exists());
    let root = logs.path().to_str().unwrap();
    for allowed in [&["--file-root", root][..], &["--trust-sources"]] {
        let server = Server::start(&[&["--config", &url], allowed].concat());
        server.until("/readyz", "200 OK");
        assert!(path.exists(), "{allowed:?}");
    }
}

#[test]
fn a_source_names_allowed_adapters_elsewhere_only_unless_it_is_trusted() {
    let adapter = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let manifest = run(&["manifest", "denier", "--handler-example", "--address", &adapter.grpc]);
    assert_eq!(manifest.code, 0, "{manifest:?}");
    fs::write(directory.path().join("denier.yaml"), manifest.stdout).unwrap();
    let (address, _source) = serve(directory.path());
    let url = format!("mcp://{address}");
    let server = Server::start(&["--config", &url]);
    server.until("/config", "connection.address: 127.0.0.1 may not be connected to");
    for allowed in [&["--allow-hosts", "127.0.0.1"][..], &["--trust-sources"]] {
        let server = Server::start(&[&["--config", &url], allowed].concat());
        server.until("/readyz", "200 OK");
    }
}
