//! Whatever a server of configuration pushes first, in any order, over any protocol, and across restarts of either side: nothing is in use
//! before all of it is valid, and afterwards a fault changes nothing.

use std::fs;

use crate::support::{Server, binary, eventually, run};

/// The resources that deny `/admin`, each in a file of its own: the name of the file, its content, and a fault with its replacement.
const PARTS: [(&str, &str, [&str; 2]); 3] = [
    (
        "handler.yaml",
        "kind: handler\nmetadata: {name: closed, namespace: istio-system}\nspec: {compiledAdapter: listchecker, params: {overrides: [/admin], blacklist: true}}\n",
        ["overrides", "overridez"],
    ),
    (
        "instance.yaml",
        "kind: instance\nmetadata: {name: path, namespace: istio-system}\nspec: {compiledTemplate: listentry, params: {value: request.path | \"/\"}}\n",
        ["request.path", "request.paht"],
    ),
    (
        "rule.yaml",
        "kind: rule\nmetadata: {name: close, namespace: istio-system}\nspec: {match: request.path != \"\", actions: [{handler: closed, instances: [path]}]}\n",
        ["handler: closed", "handler: clozed"],
    ),
];

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A part has a fault from now on, or none.
    Write {
        part: usize,
        is_valid: bool,
    },
    RestartSource,
    RestartServer,
}

/// Returns steps that are the same for each number, and others for another one.
fn steps(number: usize) -> Vec<Step> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(number as u64 + 1);
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let step = |_| match random(5) {
        0 => Step::RestartSource,
        1 => Step::RestartServer,
        _ => Step::Write { part: random(3) as usize, is_valid: random(3) > 0 },
    };
    (0..10).map(step).collect()
}

/// A directory, and the servers that read it over a protocol.
struct Served {
    directory: tempfile::TempDir,
    /// `None` for a server that reads the directory itself.
    scheme: Option<&'static str>,
    address: String,
    source: Option<Server>,
    server: Option<Server>,
    valid: [bool; 3],
    /// The parts that a restarted server is sent without a fault: a source serves what a file held before its fault.
    served: [bool; 3],
    /// Whether the server may have received everything without a fault since it started.
    may_be_live: bool,
}

impl Served {
    fn start(scheme: Option<&'static str>, faulty: usize) -> Self {
        let mut served = Self {
            directory: tempfile::tempdir().unwrap(),
            scheme,
            address: "127.0.0.1:0".to_owned(),
            source: None,
            server: None,
            valid: [true; 3],
            served: [true; 3],
            may_be_live: false,
        };
        (0..PARTS.len()).for_each(|part| served.write(part, part != faulty));
        served.start_source();
        served.start_server();
        served
    }

    fn write(&mut self, part: usize, is_valid: bool) {
        let (name, content, [right, wrong]) = PARTS[part];
        let content = if is_valid { content.to_owned() } else { content.replace(right, wrong) };
        // Moved there, so that it is never half written.
        let new = self.directory.path().join(".new");
        fs::write(&new, content).unwrap();
        fs::rename(new, self.directory.path().join(name)).unwrap();
        self.valid[part] = is_valid;
        self.served[part] = is_valid || (self.served[part] && self.source.is_some());
        self.may_be_live |= self.served == [true; 3];
    }

    fn start_source(&mut self) {
        if self.scheme.is_none() {
            return;
        }
        self.source = None;
        self.served = self.valid;
        let ports = ["--listen", &self.address, "--admin", "127.0.0.1:0", "--log", "error"];
        let mut source = binary();
        source.arg("source").arg(self.directory.path()).args(ports);
        let (source, _) = Server::spawn(&mut source);
        self.address.clone_from(&source.grpc);
        self.source = Some(source);
    }

    fn start_server(&mut self) {
        self.server = None;
        self.may_be_live = self.served == [true; 3];
        let url = match self.scheme {
            Some(scheme) => format!("{scheme}://{}", self.address),
            None => self.directory.path().to_str().unwrap().to_owned(),
        };
        self.server = Some(Server::start(&["--config", &url, "--max-redial-wait", "200ms"]));
    }

    /// Checks that no request for `/admin` is allowed, and that nothing decides before everything was valid.
    fn check(&self, steps: &[Step]) {
        let server = self.server.as_ref().unwrap();
        for _ in 0..3 {
            let check =
                run(&["check", "request.path=/admin", "--address", &server.grpc, "--timeout", "300ms"]);
            // Right after its start a server waits for its configuration, until the deadline of the check.
            let is_unanswered =
                ["UNAVAILABLE", "DEADLINE_EXCEEDED"].iter().any(|code| check.stderr.contains(code));
            let is_denied = self.may_be_live && check.stdout.starts_with("denied: ");
            assert!(
                (check.code == 1 && is_unanswered) || is_denied,
                "{:?} {steps:?}: {check:?}",
                self.scheme
            );
            if !self.may_be_live {
                let ready = server.get("/readyz");
                assert!(ready.contains("503 Service Unavailable"), "{:?} {steps:?}: {ready}", self.scheme);
            }
        }
    }
}

fn nothing_is_in_use_before_everything_is_valid(scheme: Option<&'static str>, number: usize) {
    let mut served = Served::start(scheme, number % PARTS.len());
    let steps = steps(number);
    for (index, step) in steps.iter().enumerate() {
        served.check(&steps[..index]);
        match *step {
            Step::Write { part, is_valid } => served.write(part, is_valid),
            Step::RestartSource => served.start_source(),
            Step::RestartServer => served.start_server(),
        }
    }
    served.check(&steps);
    for part in (0..PARTS.len()).rev() {
        served.write(part, true);
    }
    let server = served.server.as_ref().unwrap();
    let is_denied =
        || run(&["check", "request.path=/admin", "--address", &server.grpc]).stdout.starts_with("denied: ");
    eventually(&format!("{scheme:?} {steps:?}: it is denied"), || is_denied().then_some(()));
    server.until("/readyz", "200 OK");
}

#[test]
fn nothing_is_in_use_before_everything_is_valid_over_any_protocol_in_any_order() {
    let streams = ["mcp", "xds", "xds+delta", "xds+http", "mcp+aggregated", "mcp+aggregated-delta"];
    let schemes = streams.map(Some).into_iter().chain([None]);
    std::thread::scope(|scope| {
        for (number, scheme) in schemes.enumerate() {
            scope.spawn(move || nothing_is_in_use_before_everything_is_valid(scheme, number));
        }
    });
}
