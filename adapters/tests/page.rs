//! The pages of the admin ports, in a real browser.
#![allow(clippy::unwrap_used)]

mod support;

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use support::{Server, binary, debian, run};

/// Runs Chromium until the scripts of a page have waited for six seconds of its own time, and returns what it prints and logs.
/// `None` if there is no Chromium.
fn chromium(arguments: &[&str], url: &str) -> Option<(String, String)> {
    let program = debian::program("chromium", "chromium")?;
    let profile = tempfile::tempdir().unwrap();
    let ran = Command::new(program)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=6000"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .args(arguments)
        .arg(url)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some((text(&ran.stdout), text(&ran.stderr)))
}

/// The document of a page after its scripts ran; they must not break its rules or fail.
fn document(url: &str) -> Option<String> {
    let (document, log) = chromium(&["--dump-dom"], url)?;
    let complaints: Vec<_> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
    Some(document)
}

/// A picture of a page, which stays with what the build made.
fn screenshot(name: &str, width: u32, arguments: &[&str], url: &str) {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}-{width}.png"));
    let picture = format!("--screenshot={}", path.display());
    let size = format!("--window-size={width},1600");
    chromium(&[&[&*picture, &*size, "--hide-scrollbars"], arguments].concat(), url).unwrap();
    assert!(fs::metadata(&path).unwrap().len() > 10_000, "{} has a picture", path.display());
}

#[test]
fn the_page_shows_what_is_in_use_and_explains_a_request() {
    let server = Server::start(&[]);
    // Counted, so that the page has something to show.
    let check = run(&["check", "--address", &server.grpc, "--attributes", "request.path=/admin"]);
    assert!(check.stdout.starts_with("denied"), "{check:?}");
    let url = format!("http://{}/#explain=request.path%3D%2Fadmin", server.admin);
    let Some(document) = document(&url) else { return };
    for shown in [
        r#"<span class="good">ready</span>"#,
        "3 rules with an effect, 3 handlers; 1 applied, 0 refused",
        // Matched and denied twice with the explanation, or once before it.
        "<td>check-path.rule.istio-system</td><td>the sample:35</td><td class=\"number\">",
        "<td>path.instance.istio-system</td><td class=\"number\">",
        "<td>closed-paths.handler.istio-system</td><td class=\"number\">",
        "<td>Denies every check with a fixed status.</td>",
        "denied: PERMISSION_DENIED: closed-paths.istio-system:/admin is blacklisted",
        "check: rule check-path.rule.istio-system: (always) -&gt; matched",
    ] {
        assert!(document.contains(shown), "{shown} in {document}");
    }
    for (name, arguments) in [("light", &[][..]), ("dark", &["--blink-settings=preferredColorScheme=0"])] {
        screenshot(name, 1280, arguments, &url);
        screenshot(name, 420, arguments, &url);
    }
}

#[test]
fn the_page_shows_faults_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let rule = "apiVersion: config.istio.io/v1alpha2\nkind: rule\nmetadata: {name: r, namespace: ns}\n\
                spec: {match: '<b>', actions: []}\n";
    fs::write(folder.path().join("rule.yaml"), rule).unwrap();
    let config = folder.path().to_str().unwrap();
    let server = Server::start(&["--config", config, "--lenient"]);
    let Some(document) = document(&format!("http://{}/", server.admin)) else { return };
    assert!(document.contains("spec.match: expected a value (in `&lt;`)</p>"), "{document}");
}

#[test]
fn the_page_of_a_source_shows_its_collections_and_what_sinks_refuse() {
    let folder = tempfile::tempdir().unwrap();
    let rule = "apiVersion: config.istio.io/v1alpha2\nkind: rule\nmetadata: {name: r, namespace: ns}\nspec: {actions: []}\n";
    fs::write(folder.path().join("rule.yaml"), rule).unwrap();
    let config = folder.path().to_str().unwrap();
    let ports =
        ["source", "--config", config, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error"];
    let (source, _) = Server::spawn(binary().args(ports));
    let sink = Server::start(&["--config", &format!("mcp://{}", source.grpc)]);
    source.until("/config", r#""refused":["#);
    let Some(document) = document(&format!("http://{}/", source.admin)) else { return };
    assert!(
        document.contains("<td>istio/policy/v1beta1/rules</td><td class=\"number\">1</td>"),
        "{document}"
    );
    assert!(document.contains("spec.actions: the rule does nothing"), "{document}");
    screenshot("source", 1280, &[], &format!("http://{}/", source.admin));
    drop(sink);
}
