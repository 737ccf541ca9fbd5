//! The pages of the admin ports, in a real browser.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use crate::support::{Server, binary, debian, eventually, mixer::call, run};
use mixer_adapter_engine::proto::istio::mixer::v1::{
    CheckRequest, CheckResponse, check_request::QuotaParams,
};
use serde_json::{Value as Json, json};

const FLAGS: [&str; 8] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
];

/// Runs Chromium until the scripts of a page have waited for six seconds of its own time, and returns what it prints and logs.
/// `None` if there is no Chromium.
fn chromium(arguments: &[&str], url: &str) -> Option<(String, String)> {
    let program = debian::program("chromium", "chromium")?;
    let profile = tempfile::tempdir().unwrap();
    let ran = Command::new(program)
        .args(FLAGS)
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

/// A Chromium that is open, with one page. Its DevTools protocol has messages that end in 0 on the file descriptors 3 and 4.
struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    calls: u64,
    session: Option<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Opens a page. `None` if there is no Chromium.
    fn open(url: &str) -> Option<Self> {
        Self::open_with(url, "")
    }

    /// Opens a page after a script of the test.
    fn open_with(url: &str, script: &str) -> Option<Self> {
        let program = debian::program("chromium", "chromium")?;
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", r#"exec "$0" "$@" 3<&0 4>&1 2>/dev/null"#])
            .arg(program)
            .args(FLAGS)
            .arg("--remote-debugging-pipe")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser = Self { child, input, output, calls: 0, session: None, _profile: profile };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        browser.call("Page.enable", json!({}));
        browser.call("Page.addScriptToEvaluateOnNewDocument", json!({"source": script}));
        browser.call("Page.navigate", json!({"url": url}));
        Some(browser)
    }

    fn call(&mut self, method: &str, params: Json) -> Json {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.input.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let mut answer = Vec::new();
            assert!(self.output.read_until(0, &mut answer).unwrap() > 0, "Chromium has ended");
            let answer: Json = serde_json::from_slice(&answer[..answer.len() - 1]).unwrap();
            // Others are events.
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{answer}");
                return answer["result"].clone();
            }
        }
    }

    /// Returns the value of an expression in the page.
    fn evaluate(&mut self, expression: &str) -> Json {
        let result = self.call("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}));
        assert!(result["exceptionDetails"].is_null(), "{result}");
        result["result"]["value"].clone()
    }

    /// Presses and releases a key.
    fn press(&mut self, key: &str, text: &str) {
        let code = if key == "Tab" { 9 } else { 13 };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            let event =
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Waits until an expression is true.
    fn until_true(&mut self, expression: &str) {
        eventually(expression, || (self.evaluate(expression) == true).then_some(()));
    }

    /// Waits until the text of an element has a part, and returns the text.
    fn until(&mut self, id: &str, part: &str) -> String {
        let expression = format!("document.getElementById({id:?})?.textContent ?? ''");
        let mut last = String::new();
        eventually(&format!("{id} shows {part:?}"), || {
            last = self.evaluate(&expression).as_str().unwrap().to_owned();
            last.contains(part).then(|| last.clone())
        })
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_link_to_an_explanation_fills_in_the_form_and_a_click_explains() {
    let server = Server::start(&[]);
    let url = format!("http://{}/#explain=request.path%3D%2Fadmin", server.admin);
    let Some(mut browser) = Browser::open(&url) else { return };
    browser.until("use", "3 rules with an effect");
    assert_eq!(browser.evaluate("document.getElementById('attributes').value"), "request.path=/admin");
    assert_eq!(browser.evaluate("document.getElementById('explanation').hidden"), true);
    browser.evaluate("document.querySelector('#explain button').click()");
    let explanation = browser.until("explanation", "denied");
    assert!(
        explanation.contains("denied: PERMISSION_DENIED: closed-paths.istio-system:/admin is blacklisted")
            && explanation.contains("check: rule check-path.rule.istio-system: (always) -> matched"),
        "{explanation}"
    );
}

#[test]
fn a_link_that_is_not_valid_is_no_error_of_the_page() {
    let server = Server::start(&[]);
    let url = format!("http://{}/#explain=%zz", server.admin);
    let Some(document) = document(&url) else { return };
    assert!(document.contains("a % in it is not followed by two digits"), "{document}");
}

#[test]
fn the_page_shows_decisions_as_they_come_and_filters_them() {
    let server = Server::start(&[]);
    let Some(mut browser) = Browser::open(&format!("http://{}/", server.admin)) else { return };
    browser.until("recent", "None since this page is open.");
    run(&["check", "--address", &server.grpc, "-a", "request.path=/admin"]);
    let params = QuotaParams { amount: 2, best_effort: false };
    let request =
        CheckRequest { quotas: [("requests".to_owned(), params)].into(), ..CheckRequest::default() };
    call::<_, CheckResponse>(&server, "Check", request).unwrap();
    let shown = browser.until("recent", "requests: 2 of 2");
    for part in
        ["denied", "check-path.rule.istio-system", "allowed", r#""request.path": "/admin""#, "closed-paths"]
    {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    let count = "document.querySelectorAll('#recent tbody tr').length";
    assert_eq!(browser.evaluate(count), 3);
    // A check and its quota have one id, and are shown together.
    browser.evaluate(
        "find('rule').value = [...document.querySelectorAll('#recent tr')].find((row) => row.textContent.includes('granted')).querySelector('code').textContent;
         find('rule').dispatchEvent(new Event('input'))",
    );
    let shown = browser.until("recent", "granted");
    assert!(shown.contains("allowed") && !shown.contains("denied"), "{shown}");
    browser.evaluate("find('rule').value = ''; find('verdict').value = 'denied'; find('verdict').dispatchEvent(new Event('change'))");
    let shown = browser.until("recent", "denied");
    assert!(!shown.contains("allowed"), "{shown}");
    browser.evaluate("find('rule').value = 'another'; find('rule').dispatchEvent(new Event('input'))");
    browser.until("recent", "None matches.");
    let quotas = browser.until("quotas", "requests.instance.istio-system");
    assert!(quotas.contains("given back"), "{quotas}");
}

#[test]
fn the_page_runs_no_script_and_loads_nothing_but_its_own() {
    let server = Server::start(&[]);
    let answer = server.get("/");
    let policy = answer.lines().find_map(|line| line.strip_prefix("content-security-policy: ")).unwrap();
    let mut directives: Vec<&str> = policy.split("; ").collect();
    directives.sort_unstable();
    let [base, connect, default, form, frame, script, style] = directives[..] else { panic!("{policy}") };
    assert_eq!(
        [base, connect, default, form, frame],
        [
            "base-uri 'none'",
            "connect-src 'self'",
            "default-src 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'"
        ]
    );
    assert!(script.starts_with("script-src 'sha256-") && style.starts_with("style-src 'sha256-"), "{policy}");

    let recorded = "window.refused = new Set(); \
                    document.addEventListener('securitypolicyviolation', (event) => refused.add(event.effectiveDirective));";
    let Some(mut browser) = Browser::open_with(&format!("http://{}/", server.admin), recorded) else {
        return;
    };
    browser.until("use", "3 rules with an effect");
    // What somebody who could write into the page would try.
    browser.evaluate(
        "const script = make('script'); script.textContent = 'window.ran = true'; document.body.append(script);
         const style = make('style'); style.textContent = 'body { color: red }'; document.body.append(style);
         const image = make('img'); image.src = 'data:image/gif;base64,R0lGODlhAQABAAAAACw='; document.body.append(image);
         fetch('http://127.0.0.1:1/').catch(() => {}); undefined",
    );
    for directive in ["script-src-elem", "style-src-elem", "img-src", "connect-src"] {
        browser.until_true(&format!("refused.has({directive:?})"));
    }
    assert_eq!(browser.evaluate("window.ran === undefined"), true);
}

#[test]
fn the_page_is_used_by_keyboard_alone() {
    let server = Server::start(&[]);
    let Some(mut browser) = Browser::open(&format!("http://{}/", server.admin)) else { return };
    browser.until("decisions", "None since this page is open.");
    // What is focused is seen.
    let focused = "(document.activeElement.id || document.activeElement.textContent)
                   + (getComputedStyle(document.activeElement).outlineStyle === 'none' ? ' (unseen)' : '')";
    let mut order = Vec::new();
    while order.last().is_none_or(|last| last != "Explain") {
        browser.press("Tab", "");
        order.push(browser.evaluate(focused).as_str().unwrap().to_owned());
        assert!(order.len() < 30, "{order:?}");
    }
    assert_eq!(order, ["rule", "verdict", "attributes", "Explain"]);
    browser.press("Enter", "\r");
    browser.until("explanation", "denied: PERMISSION_DENIED");
    // A long explanation can be scrolled.
    browser.press("Tab", "");
    assert_eq!(browser.evaluate(focused), "explanation");
}

#[test]
fn the_page_has_no_form_and_no_attributes_where_requests_may_not_be_explained() {
    let server = Server::start(&[]);
    // Like a server whose admin port is not on loopback.
    let elsewhere = "const answered = fetch; window.asked = [];
        window.fetch = async (path) => {
            asked.push(path);
            const response = await answered(path);
            if (path !== 'status') return response;
            const status = await response.json();
            return { ok: true, json: async () => ({ ...status, explain: false }) };
        };";
    let Some(mut browser) = Browser::open_with(&format!("http://{}/", server.admin), elsewhere) else {
        return;
    };
    browser.until("use", "3 rules with an effect");
    // The page was updated as a whole, more than once.
    browser.until_true("asked.filter((path) => path === 'status').length > 1");
    for section in ["explain", "decisions"] {
        let hidden = format!("find({section:?}).hidden && !find({section:?}).checkVisibility()");
        assert_eq!(browser.evaluate(&hidden), true, "{section}");
    }
    assert_eq!(browser.evaluate("asked.some((path) => /explain|decisions/.test(path))"), false);
}

#[test]
fn the_page_shows_what_is_in_use() {
    let server = Server::start(&[]);
    // Counted and recorded, so that the page has something to show.
    server.get("/decisions");
    let check = run(&["check", "--address", &server.grpc, "--attributes", "request.path=/admin"]);
    assert!(check.stdout.starts_with("denied"), "{check:?}");
    let url = format!("http://{}/", server.admin);
    let Some(document) = document(&url) else { return };
    for shown in [
        r#"<span class="good">ready</span>"#,
        "3 rules with an effect, 3 handlers; 1 applied, 0 refused",
        "<td>check-path.rule.istio-system</td><td>the sample:35</td><td class=\"number\">",
        "<td>path.instance.istio-system</td><td class=\"number\">",
        "<td>closed-paths.handler.istio-system</td><td class=\"number\">",
        "<td>Denies every check with a fixed status.</td>",
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
