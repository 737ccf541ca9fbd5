//! The pages of the admin ports, in a real browser.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};

use crate::support::{Server, binary, debian, eventually, load::CheckLoad, mixer::call, run};
use base64::{Engine as _, prelude::BASE64_STANDARD};
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

    /// Sets the size of the window in pixels.
    fn resize(&mut self, width: u32, height: u32) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Clicks an element, and returns whether it is there.
    fn click(&mut self, selector: &str) {
        let clicked = format!("document.querySelector({selector:?})?.click() === undefined");
        assert_eq!(
            self.evaluate(&format!("document.querySelector({selector:?}) !== null && {clicked}")),
            true
        );
    }

    /// Writes into a field, as somebody who types does.
    fn fill(&mut self, id: &str, text: &str) {
        self.evaluate(&format!(
            "find({id:?}).value = {text:?}; find({id:?}).dispatchEvent(new Event('input')); find({id:?}).dispatchEvent(new Event('change'))"
        ));
    }

    /// A picture of the first screen, which stays with what the build made.
    fn screenshot(&mut self, name: &str, width: u32, height: u32) {
        self.resize(width, height);
        let picture = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let picture = BASE64_STANDARD.decode(picture["data"].as_str().unwrap()).unwrap();
        assert!(picture.len() > 10_000, "{name} has a picture");
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("page-{name}-{width}.png"));
        fs::write(path, picture).unwrap();
    }

    /// Whether an element is within the first screen.
    fn is_on_first_screen(&mut self, selector: &str) -> bool {
        let within = format!(
            "(() => {{ const box = document.querySelector({selector:?})?.getBoundingClientRect();
                return Boolean(box) && box.height > 0 && box.top >= 0 && box.bottom <= innerHeight && box.right <= innerWidth; }})()"
        );
        self.evaluate(&within) == true
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

/// The sizes of the first screen.
const SCREENS: [(u32, u32); 2] = [(1280, 800), (420, 900)];

/// Rules for one path each that call a handler of another server.
fn remote_rules(count: usize, address: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("adapters.yaml"), run(&["manifest", "noop"]).stdout).unwrap();
    let mut rules = format!(
        "kind: handler\nmetadata: {{name: away, namespace: istio-system}}\n\
         spec: {{adapter: noop, connection: {{address: '{address}'}}, params: {{}}}}\n---\n\
         kind: instance\nmetadata: {{name: any, namespace: istio-system}}\nspec: {{template: checknothing, params: {{}}}}\n"
    );
    for number in 0..count {
        rules += &format!(
            "---\nkind: rule\nmetadata: {{name: r{number}, namespace: istio-system}}\n\
             spec: {{match: 'request.path == \"/{number}\"', actions: [{{handler: away, instances: [any]}}]}}\n"
        );
    }
    fs::write(directory.path().join("rules.yaml"), rules).unwrap();
    directory
}

/// A server with rules whose adapter is `adapter`.
fn serve_rules(count: usize, adapter: &Server) -> (Server, tempfile::TempDir) {
    let directory = remote_rules(count, &adapter.grpc);
    let config = directory.path().to_str().unwrap();
    let server = Server::start(&["--config", config]);
    server.until("/readyz", "\nready\n");
    (server, directory)
}

fn status(server: &Server) -> Json {
    serde_json::from_str(server.get("/status").split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn a_handler_that_goes_down_under_load_is_named_on_the_first_screen_in_the_title_and_by_status() {
    let adapter = Server::start(&[]);
    let (server, _directory) = serve_rules(300, &adapter);
    let url = format!("http://{}/", server.admin);
    let Some(mut browser) = Browser::open(&url) else { return };
    let (load, start) =
        (CheckLoad::start(&server, 2_000, |number| format!("/{}", number % 300)), Instant::now());
    browser.until("summary", "GREEN: nothing fails");
    browser.until("recent", "allowed");
    drop(adapter);
    let failing = "handler away.handler.istio-system fails: UNAVAILABLE";
    eventually("/status names the handler", || {
        let status = status(&server);
        let problem = &status["problems"][0];
        let is_named = problem["text"].as_str().is_some_and(|text| text.starts_with(failing));
        (status["state"] == "red" && is_named && problem["rule_count"] == 300).then_some(())
    });
    browser.until("summary", "RED: handler away.handler.istio-system fails");
    let shown = browser.until("problems", failing);
    assert!(shown.contains("hit: r0.rule.istio-system") && shown.contains("and 295 more"), "{shown}");
    let title = browser.evaluate("document.title").as_str().unwrap().to_owned();
    assert!(title.starts_with("red: handler away.handler.istio-system fails"), "{title}");
    let recent = browser.until("recent", "failed");
    assert!(recent.contains("away.handler.istio-system: UNAVAILABLE"), "{recent}");
    browser.until("hit", "paths /");
    // A point has been added since.
    browser.until_true("shown.history.failures.at(-1) > 0");
    for (width, height) in SCREENS {
        browser.resize(width, height);
        for shown in ["#summary", "#problems li", "#charts"] {
            assert!(browser.is_on_first_screen(shown), "{shown} at {width}");
        }
        let overflow =
            browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!(overflow, 0, "at {width}");
        browser.screenshot("down", width, height);
    }
    let (checks, time) = (load.finish(), start.elapsed());
    println!("{checks} checks in {} s: {:.0} per second", time.as_secs(), checks as f64 / time.as_secs_f64());
}

#[test]
fn the_inventory_of_thousands_of_rules_is_searched_sorted_and_below_two_screens() {
    let adapter = Server::start(&[]);
    let (server, _directory) = serve_rules(1_000, &adapter);
    let Some(mut browser) = Browser::open(&format!("http://{}/", server.admin)) else { return };
    run(&["check", "--address", &server.grpc, "-a", "request.path=/1"]);
    browser.until("summary", "GREEN");
    for (width, height) in SCREENS {
        browser.resize(width, height);
        browser.evaluate("find('rules').open = true");
        browser.until("rules", "r1.rule.istio-system");
        let screens =
            browser.evaluate("document.documentElement.scrollHeight / innerHeight").as_f64().unwrap();
        assert!(screens < 2.0, "{screens} at {width}");
        browser.screenshot("inventory", width, height);
    }
    let first = "find('rules').querySelector('tbody td').textContent";
    assert_eq!(browser.evaluate(first), "r1.rule.istio-system", "the busiest is the first");
    browser.click("#rules th:first-child button");
    assert_eq!(browser.evaluate(first), "other", "the sum of those that are counted together");
    let second = "find('rules').querySelector('tbody tr:nth-child(2) td').textContent";
    assert_eq!(browser.evaluate(second), "r0.rule.istio-system");
    // The search finds rules that are counted together, too.
    browser.fill("search", "R42.RULE");
    browser.until_true("find('rules').querySelectorAll('tbody tr').length === 1");
    browser.fill("search", "r999.");
    browser.until_true("find('rules').querySelectorAll('tbody tr').length === 1");

    // Quick with ten thousand: the rules of the page's answers are replaced.
    let took = browser.evaluate(
        "(() => {
            const rule = (number) => ({ name: `rule-${number}.rule.shop`, place: `rules.yaml:${number}`, matched: number, denied: 0, failed: 0, mean_micros: 5 });
            const rules = Array.from({ length: 10000 }, (_, number) => rule(number));
            const start = performance.now();
            showResources({ rules, other_rules: [], handlers: [], instances: [], quotas: [] });
            tables.rules.update(rules, 'rule-99');
            tables.rules.update(rules, '');
            return (performance.now() - start) / 3;
        })()",
    );
    assert!(took.as_f64().unwrap() < 2_000.0, "{took} ms");
    assert_eq!(browser.evaluate("find('rules').querySelectorAll('tbody tr').length"), 100);
}

#[test]
fn selection_focus_and_open_details_survive_updates_which_patch_rows_in_place() {
    let server = Server::start(&[]);
    let Some(mut browser) = Browser::open(&format!("http://{}/", server.admin)) else { return };
    browser.until("counts", "None since this page is open.");
    let check =
        |path: &str| run(&["check", "--address", &server.grpc, "-a", &format!("request.path={path}")]);
    check("/admin");
    browser.until("recent", "denied");
    browser.evaluate(
        "window.row = document.querySelector('#recent li');
         row.querySelector('details').open = true;
         getSelection().selectAllChildren(row.querySelector('b'));
         find('rules').open = true",
    );
    browser.until("rules", "check-path.rule.istio-system");
    browser.evaluate("window.rule = find('rules').querySelector('tbody tr'); find('pause').focus()");
    check("/shop");
    browser.until("recent", "allowed");
    let matched = "find('rules').querySelector('tbody tr').children[2].textContent === '2'";
    browser.until_true(matched);
    for stays in [
        "row.isConnected && row.querySelector('details').open && row.querySelector('pre').textContent.includes('request.path')",
        "getSelection().toString() === 'denied'",
        "document.activeElement === find('pause')",
        "rule.isConnected && rule === find('rules').querySelector('tbody tr') && find('rules').open",
    ] {
        assert_eq!(browser.evaluate(stays), true, "{stays}");
    }
}

#[test]
fn a_paused_list_of_decisions_changes_when_it_is_resumed() {
    let server = Server::start(&[]);
    let Some(mut browser) = Browser::open(&format!("http://{}/", server.admin)) else { return };
    browser.until("counts", "None since this page is open.");
    browser.click("#pause");
    run(&["check", "--address", &server.grpc, "-a", "request.path=/admin"]);
    browser.until("pause", "Resume (1 new)");
    assert_eq!(browser.evaluate("find('recent').children.length"), 0);
    browser.click("#pause");
    browser.until("recent", "denied");
}

#[test]
fn a_server_that_is_gone_is_red_on_its_page() {
    let server = Server::start(&[]);
    let Some(mut browser) = Browser::open(&format!("http://{}/", server.admin)) else { return };
    browser.until("summary", "GREEN: nothing fails");
    drop(server);
    browser.until("summary", "No answer since");
    assert_eq!(browser.evaluate("find('state').className"), "red");
    assert_eq!(browser.evaluate("document.title"), "no answer · mixer-adapter");
}

#[test]
fn texts_of_requests_are_shown_as_text() {
    let server = Server::start(&[]);
    let Some(mut browser) = Browser::open(&format!("http://{}/", server.admin)) else { return };
    browser.until("counts", "None since this page is open.");
    let hostile = "/<img src=x onerror=alert(1)><script>window.ran=1</script>";
    run(&[
        "check",
        "--address",
        &server.grpc,
        "-a",
        &format!("request.path={hostile}"),
        "-a",
        "source.user=<b>eve</b>",
    ]);
    let recent = browser.until("recent", "<b>eve</b>");
    assert!(recent.contains(hostile), "{recent}");
    browser.evaluate("document.querySelector('#recent details').open = true");
    browser.until("recent", "\"source.user\": \"<b>eve</b>\"");
    assert_eq!(browser.evaluate("find('recent').querySelectorAll('img, script').length"), 0);
}

#[test]
fn a_click_on_a_decision_explains_its_request() {
    let server = Server::start(&[]);
    let Some(mut browser) = Browser::open(&format!("http://{}/", server.admin)) else { return };
    browser.until("counts", "None since this page is open.");
    run(&["check", "--address", &server.grpc, "-a", "request.path=/admin"]);
    browser.until("recent", "denied");
    browser.click("#recent button");
    let explanation = browser.until("explanation", "denied: PERMISSION_DENIED");
    assert!(explanation.contains("check-path.rule.istio-system: (always) -> matched"), "{explanation}");
}

#[test]
fn a_link_to_an_explanation_fills_in_the_form_and_a_click_explains() {
    let server = Server::start(&[]);
    let url = format!("http://{}/#explain=request.path%3D%2Fadmin", server.admin);
    let Some(mut browser) = Browser::open(&url) else { return };
    browser.until("about", "3 rules");
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
    browser.until("counts", "None since this page is open.");
    run(&["check", "--address", &server.grpc, "-a", "request.path=/admin", "-a", "source.user=alice"]);
    let params = QuotaParams { amount: 2, best_effort: false };
    let request =
        CheckRequest { quotas: [("requests".to_owned(), params)].into(), ..CheckRequest::default() };
    call::<_, CheckResponse>(&server, "Check", request).unwrap();
    let shown = browser.until("recent", "requests: 2 of 2");
    for part in ["denied", "check-path.rule.istio-system", "allowed", "/admin · alice", "closed-paths"] {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    // A check and its quota have one id, and are shown together.
    assert_eq!(browser.evaluate("document.querySelectorAll('#recent > li').length"), 2);
    let hit = browser.until("hit", "1 denied: ");
    assert!(hit.contains("users alice (1)") && hit.contains("paths /admin (1)"), "{hit}");
    // By rule, path, user, message and peer.
    for (text, verdict) in [
        ("check-path.rule", "denied"),
        ("/ADMIN", "denied"),
        ("alice", "denied"),
        ("is blacklisted", "denied"),
        ("granted", "allowed"),
    ] {
        browser.fill("filter", text);
        let shown = browser.evaluate("find('recent').textContent").as_str().unwrap().to_owned();
        assert!(shown.contains(verdict), "{text}: {shown}");
    }
    browser.fill("filter", "alice");
    assert_eq!(browser.evaluate("find('recent').children.length"), 1);
    browser.fill("filter", "");
    browser.fill("verdict", "allowed");
    let shown = browser.until("recent", "allowed");
    assert!(!shown.contains("denied"), "{shown}");
    browser.fill("filter", "another");
    browser.until("counts", "None matches.");
    browser.evaluate("find('quotas').open = true");
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
    browser.until("about", "3 rules");
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
    browser.until("counts", "None since this page is open.");
    // What is focused is seen.
    let focused = "(document.activeElement.id || document.activeElement.textContent)
                   + (getComputedStyle(document.activeElement).outlineStyle === 'none' ? ' (unseen)' : '')";
    let mut order = Vec::new();
    while order.last().is_none_or(|last| last != "Explain") {
        browser.press("Tab", "");
        order.push(browser.evaluate(focused).as_str().unwrap().to_owned());
        assert!(order.len() < 30, "{order:?}");
    }
    assert_eq!(order, ["filter", "verdict", "pause", "recent", "attributes", "Explain"]);
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
            if (path !== 'status?brief') return response;
            const status = await response.json();
            return { ok: true, json: async () => ({ ...status, explain: false }) };
        };";
    let Some(mut browser) = Browser::open_with(&format!("http://{}/", server.admin), elsewhere) else {
        return;
    };
    browser.until("about", "3 rules");
    // The page was updated as a whole, more than once.
    browser.until_true("asked.filter((path) => path === 'status?brief').length > 1");
    browser.until_true("!find('closed').hidden");
    for section in ["explain", "decisions"] {
        let hidden = format!("find({section:?}).hidden && !find({section:?}).checkVisibility()");
        assert_eq!(browser.evaluate(&hidden), true, "{section}");
    }
    assert_eq!(browser.evaluate("asked.some((path) => /explain|decisions/.test(path))"), false);
}

#[test]
fn the_page_shows_what_is_in_use() {
    let server = Server::start(&[]);
    let check = run(&["check", "--address", &server.grpc, "--attributes", "request.path=/admin"]);
    assert!(check.stdout.starts_with("denied"), "{check:?}");
    let Some(mut browser) = Browser::open(&format!("http://{}/", server.admin)) else { return };
    browser.until("about", "3 rules, 3 handlers");
    for (section, parts) in [
        ("rules", &["check-path.rule.istio-system", "the sample:35"][..]),
        ("handlers", &["closed-paths.handler.istio-system"]),
        ("instances", &["path.instance.istio-system"]),
        ("configuration", &["1 applied, 0 refused", "handlers"]),
        ("adapters", &["Denies every check with a fixed status.", "3 open"]),
        ("sessions", &["none"]),
    ] {
        browser.evaluate(&format!("find({section:?}).open = true"));
        for part in parts {
            browser.until(section, part);
        }
    }
    assert_eq!(browser.evaluate("document.querySelectorAll('#inventory details[open]').length"), 1);
}

#[test]
fn the_page_shows_faults_as_text() {
    let folder = tempfile::tempdir().unwrap();
    let rule = "apiVersion: config.istio.io/v1alpha2\nkind: rule\nmetadata: {name: r, namespace: ns}\n\
                spec: {match: '<b>', actions: []}\n";
    fs::write(folder.path().join("rule.yaml"), rule).unwrap();
    let config = folder.path().to_str().unwrap();
    let server = Server::start(&["--config", config, "--lenient"]);
    let Some(mut browser) = Browser::open(&format!("http://{}/", server.admin)) else { return };
    browser.until("summary", "AMBER: parts of the configuration are not in use");
    let problems = browser.evaluate("find('problems').innerHTML").as_str().unwrap().to_owned();
    assert!(problems.contains("spec.match: expected a value (in `&lt;`)"), "{problems}");
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
    let Some(mut browser) = Browser::open(&format!("http://{}/", source.admin)) else { return };
    browser.until("collections", "istio/policy/v1beta1/rules1");
    browser.until("sinks", "spec.actions: the rule does nothing");
    browser.until("summary", "RED: ");
    browser.screenshot("source", 1280, 800);
    drop(sink);
    browser.until("summary", "AMBER: no sink is connected");
}
