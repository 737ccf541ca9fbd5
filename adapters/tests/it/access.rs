//! The files, hosts and adapters that configurations in calls and sessions may use.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use crate::support::{Ran, Server, binary, eventually, run};
use serde_json::json;

/// A call of stdio that writes a line to a file, and another one that has the line written before it ends.
fn write(server: &Server, path: &Path, arguments: &[&str]) -> Ran {
    let config = json!({"log_stream": "FILE", "output_path": path}).to_string();
    let call =
        ["logentry", "--adapter", "stdio", "--config", &config, "--instance", r#"{"severity": "INFO"}"#];
    server.call(&[&call[..], arguments].concat())
}

fn fetch(server: &Server, url: &str) -> Ran {
    check(server, &json!({"provider_url": url}))
}

fn check(server: &Server, config: &serde_json::Value) -> Ran {
    let config = config.to_string();
    server.call(&[
        "listentry",
        "--adapter",
        "listchecker",
        "--config",
        &config,
        "--instance",
        r#"{"value": "a"}"#,
    ])
}

/// A provider of the list `a`.
fn provider() -> String {
    counting_provider("a".to_owned()).0
}

/// A provider of a list, which answers connections one after the other, and their number.
fn counting_provider(list: String) -> (String, Arc<AtomicUsize>) {
    let fetches = Arc::new(AtomicUsize::new(0));
    let counted = fetches.clone();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = BufReader::new(stream.try_clone().unwrap()).lines();
            while request.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            counted.fetch_add(1, Relaxed);
            let _ = write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{list}", list.len());
        }
    });
    (format!("http://{address}/list"), fetches)
}

#[test]
fn files_that_calls_and_sessions_name_are_written_below_the_file_root_only() {
    let directory = tempfile::tempdir().unwrap();
    let (root, outside) = (directory.path().join("root"), directory.path().join("outside"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, root.join("link")).unwrap();

    let server = Server::start(&[]);
    for arguments in [&[][..], &["--session"]] {
        let refused = write(&server, &root.join("a.log"), arguments);
        assert_eq!(refused.code, 1, "{refused:?}");
        for text in ["INVALID_ARGUMENT", "output_path", "--file-root, which is not set"] {
            assert!(refused.stderr.contains(text), "{text}: {refused:?}");
        }
    }
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1, "only the link");

    let server = Server::start(&["--file-root", root.to_str().unwrap()]);
    assert_eq!(write(&server, &root.join("logs/a.log"), &["--session"]).code, 0);
    crate::support::eventually("the line is written", || {
        fs::read_to_string(root.join("logs/a.log")).ok().filter(|text| text.ends_with('\n'))
    });
    for path in [outside.join("a.log"), root.join("../outside/a.log"), root.join("link/a.log")] {
        let refused = write(&server, &path, &[]);
        assert_eq!(refused.code, 1, "{path:?}: {refused:?}");
        assert!(refused.stderr.contains("output_path"), "{refused:?}");
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn hosts_that_calls_name_are_connected_to_only_where_they_are_allowed() {
    let url = provider();
    let server = Server::start(&[]);
    let refused = fetch(&server, &url);
    assert_eq!(refused.code, 1, "{refused:?}");
    for text in ["INVALID_ARGUMENT", "provider_url", "--allow-hosts"] {
        assert!(refused.stderr.contains(text), "{text}: {refused:?}");
    }

    let server = Server::start(&["--allow-hosts", "lists.example.com,127.0.0.1"]);
    let allowed = fetch(&server, &url);
    assert_eq!(allowed.stdout.lines().next(), Some("allowed"), "{allowed:?}");
    let refused = fetch(&server, &url.replace("127.0.0.1", "localhost"));
    assert!(refused.stderr.contains("localhost may not be connected to"), "{refused:?}");
}

#[test]
fn handlers_of_calls_share_the_rate_of_fetches_from_a_host_and_the_log_names_who_wants_more() {
    let (url, fetches) = counting_provider("a".to_owned());
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut serve = binary();
    serve.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--allow-hosts", "127.0.0.1"]);
    let (server, _) = Server::spawn(serve.stderr(log.reopen().unwrap()));
    let start = Instant::now();
    for handler in 0..20 {
        let ran = check(
            &server,
            &json!({"provider_url": url, "refresh_interval": "1s", "overrides": [handler.to_string()]}),
        );
        assert_eq!(ran.stdout.lines().next(), Some("allowed"), "{ran:?}");
    }
    let slow = "list is refreshed less often than its refresh_interval";
    eventually("lists are refreshed too slowly", || {
        let log = fs::read_to_string(log.path()).unwrap();
        (fetches.load(Relaxed) > 60 && log.contains(slow)).then_some(())
    });
    // Ten in each second.
    let (fetches, passed) = (fetches.load(Relaxed) as u128, start.elapsed());
    assert!(fetches <= passed.as_millis() / 100 + 1, "{fetches} in {passed:?}");
    let log = fs::read_to_string(log.path()).unwrap();
    let line = log.lines().find(|line| line.contains(slow)).unwrap();
    assert!(line.contains(&url) && line.contains("refresh_interval=1s"), "{line}");
}

#[test]
fn lists_of_calls_share_a_twelfth_of_the_memory_limit() {
    let list: String = (0..2_000).map(|n| format!("{n}\n")).collect();
    let (url, _) = counting_provider(list + "a");
    let server = Server::start(&["--allow-hosts", "127.0.0.1", "--memory-limit", "12Mi"]);
    let check = |handler: u32| {
        check(&server, &json!({"provider_url": url, "ttl": "1h", "overrides": [handler.to_string()]}))
    };
    let over = "mixer_adapter_events_total{adapter=\"listchecker\",event=\"lists_over_memory\"} ";
    // Each line is weighed with 64 bytes, so that 1 MiB is enough for seven lists at most.
    let answers: Vec<Ran> = (0..10).map(check).collect();
    let refused = answers.iter().filter(|ran| ran.stderr.contains("no memory is left for the list")).count();
    assert!((3..10).contains(&refused), "{answers:?}");
    assert!(server.get("/metrics").contains(&format!("{over}{refused}\n")), "{}", server.get("/metrics"));
    assert_eq!(check(0).stdout.lines().next(), Some("allowed"), "the first list stays");
}

#[test]
fn validation_alone_finds_what_may_not_be_reached() {
    let server = Server::start(&[]);
    for (template, adapter, config, field) in [
        ("logentry", "stdio", json!({"log_stream": "FILE", "output_path": "/tmp/a.log"}), "output_path"),
        ("listentry", "listchecker", json!({"provider_url": "http://127.0.0.1/list"}), "provider_url"),
    ] {
        let config = config.to_string();
        let call = [template, "--adapter", adapter, "--config", &config, "--instance", "{}", "--session"];
        let refused = server.call(&call);
        assert!(refused.stderr.contains("Validate: INVALID_ARGUMENT"), "{refused:?}");
        assert!(refused.stderr.contains(field), "{refused:?}");
    }
}

#[test]
fn files_of_the_operator_name_any_file() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("a.log");
    let configuration = format!(
        "apiVersion: config.istio.io/v1alpha2\nkind: stdio\nmetadata: {{name: log, namespace: istio-system}}\n\
         spec: {{log_stream: FILE, output_path: {log:?}}}\n---\n\
         apiVersion: config.istio.io/v1alpha2\nkind: logentry\nmetadata: {{name: line, namespace: istio-system}}\n\
         spec: {{severity: '\"INFO\"', variables: {{}}}}\n---\n\
         apiVersion: config.istio.io/v1alpha2\nkind: rule\nmetadata: {{name: log, namespace: istio-system}}\n\
         spec: {{actions: [{{handler: log.stdio, instances: [line.logentry]}}]}}\n"
    );
    let config = tempfile::tempdir().unwrap();
    fs::write(config.path().join("log.yaml"), configuration).unwrap();
    let server = Server::start(&["--config", config.path().to_str().unwrap()]);
    server.until("/readyz", "ready\n");
    assert!(log.exists(), "the handler is open");
}

#[test]
fn calls_configure_only_the_adapters_of_adapters_in_calls() {
    let server = Server::start(&["--adapters-in-calls", "noop,listchecker"]);
    let call = |adapter: &str| server.call(&["listentry", "--adapter", adapter, "--config", "{}"]);
    assert_eq!(call("noop").code, 0);
    let refused = call("denier");
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("PERMISSION_DENIED"), "{refused:?}");
    assert!(refused.stderr.contains("--adapters-in-calls"), "{refused:?}");
}

#[test]
fn limits_and_keys_that_cannot_be_used_are_refused_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    fs::write(&key, "0123456789abcdef0123456789abcde\n").unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    for (arguments, text) in [
        (["--session-key-file", key.to_str().unwrap()], "the key has 31 bytes; it must have at least 32"),
        (["--session-key-file", "/nowhere/key"], "cannot read --session-key-file /nowhere/key"),
        (["--session-key-file", "/dev/zero"], "it is a pipe or a device, not a regular file"),
        (["--flags-file", "/dev/zero"], "it is a pipe or a device, not a regular file"),
        (["--file-root", "/nowhere"], "cannot use --file-root /nowhere: it is not a directory"),
        (["--adapters-in-calls", "nobody"], "there is no adapter `nobody`"),
        (["--allow-hosts", "http://a"], "is not a host"),
    ] {
        let ran = run(&[&serve[..], &arguments].concat());
        assert_ne!(ran.code, 0, "{ran:?}");
        assert!(ran.stderr.contains(text), "{text}: {ran:?}");
    }
}

#[test]
fn replicas_with_one_key_give_equal_sessions_equal_ids() {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    fs::write(&key, "0123456789abcdef0123456789abcdef\n").unwrap();
    let id = |arguments: &[&str]| {
        let server = Server::start(arguments);
        let ran = server.call(&["checknothing", "--adapter", "denier", "--config", "{}", "--session"]);
        let line = ran.stderr.lines().find(|line| line.starts_with("CreateSession: OK")).map(str::to_owned);
        line.unwrap_or_else(|| panic!("{ran:?}"))
    };
    let shared = ["--session-key-file", key.to_str().unwrap()];
    assert_eq!(id(&shared), id(&shared));
    assert_ne!(id(&[]), id(&[]));
}
