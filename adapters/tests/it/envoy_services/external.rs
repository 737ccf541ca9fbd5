//! Other services that decide about requests through Envoy.

use mixer_adapter::prost::Message as _;
use mixer_adapter_envoy::proto::envoy::service::auth::v3::CheckRequest;

use super::{
    mesh::{Mesh, configured},
    support::{
        Server,
        debian::Cerbos,
        envoy::is_there,
        http::{echo, raw},
        recorder::Recorder,
    },
};
use crate::{decisions::answer_with_metadata, external_decisions::DENYING};

/// Asks a decision service about the user, the action and the todos that headers name: about one by the paths `/configured` and
/// `/discovered`, which say where the endpoint comes from, and about two by `/two`.
fn asking_pdp(url: &str) -> String {
    let subject = r#"{user: 'request.headers["x-user"] | ""', groups: 'request.headers["x-roles"]', properties: {email: 'request.headers["x-email"]'}}"#;
    let resource = r#"resource.type: 'request.headers["x-type"]', resource.id: 'request.headers["x-id"]', resource.ownerID: 'request.headers["x-owner"] | ""'"#;
    let second = r#"evaluations.second.resource.type: '"todo"', evaluations.second.resource.id: 'request.headers["x-id"]', evaluations.second.resource.ownerID: 'request.headers["x-second-owner"]'"#;
    let action = |properties: &str| {
        format!(r#"{{method: 'request.headers["x-action"]', properties: {{{properties}}}}}"#)
    };
    let [one, two] = [action(resource), action(&format!("{resource}, {second}"))];
    format!(
        r#"
kind: handler
metadata: {{name: configured, namespace: istio-system}}
spec: {{compiledAdapter: authzen, params: {{url: '{url}', groupsProperty: cerbos.roles, timeout: 5s}}}}
---
kind: handler
metadata: {{name: discovered, namespace: istio-system}}
spec:
  compiledAdapter: authzen
  params: {{url: '{url}', groupsProperty: cerbos.roles, timeout: 5s, discovery: true, evaluationsSemantic: DENY_ON_FIRST_DENY}}
---
kind: instance
metadata: {{name: one, namespace: istio-system}}
spec: {{compiledTemplate: authorization, params: {{subject: {subject}, action: {one}}}}}
---
kind: instance
metadata: {{name: two, namespace: istio-system}}
spec: {{compiledTemplate: authorization, params: {{subject: {subject}, action: {two}}}}}
---
kind: rule
metadata: {{name: ask-configured, namespace: istio-system}}
spec: {{match: request.url_path == "/configured", actions: [{{handler: configured, instances: [one]}}]}}
---
kind: rule
metadata: {{name: ask-discovered, namespace: istio-system}}
spec: {{match: request.url_path == "/discovered", actions: [{{handler: discovered, instances: [one]}}]}}
---
kind: rule
metadata: {{name: ask-both, namespace: istio-system}}
spec: {{match: request.url_path == "/two", actions: [{{handler: configured, instances: [two]}}, {{handler: discovered, instances: [two]}}]}}
"#
    )
}

/// A user of the todo application, and the published decisions about the user.
struct TodoUser {
    id: &'static str,
    email: &'static str,
    roles: &'static str,
    may_create: bool,
    may_change_others: bool,
    may_change_own: bool,
}

const RICK: TodoUser = TodoUser {
    id: "CiRmZDA2MTRkMy1jMzlhLTQ3ODEtYjdiZC04Yjk2ZjVhNTEwMGQSBWxvY2Fs",
    email: "rick@the-citadel.com",
    roles: "admin,evil_genius",
    may_create: true,
    may_change_others: true,
    may_change_own: true,
};
const MORTY: TodoUser = TodoUser {
    id: "CiRmZDE2MTRkMy1jMzlhLTQ3ODEtYjdiZC04Yjk2ZjVhNTEwMGQSBWxvY2Fs",
    email: "morty@the-citadel.com",
    roles: "editor",
    may_change_others: false,
    ..RICK
};
const SUMMER: TodoUser = TodoUser {
    id: "CiRmZDI2MTRkMy1jMzlhLTQ3ODEtYjdiZC04Yjk2ZjVhNTEwMGQSBWxvY2Fs",
    email: "summer@the-smiths.com",
    ..MORTY
};
const BETH: TodoUser = TodoUser {
    id: "CiRmZDM2MTRkMy1jMzlhLTQ3ODEtYjdiZC04Yjk2ZjVhNTEwMGQSBWxvY2Fs",
    email: "beth@the-smiths.com",
    roles: "viewer",
    may_create: false,
    may_change_own: false,
    ..MORTY
};
const JERRY: TodoUser = TodoUser {
    id: "CiRmZDQ2MTRkMy1jMzlhLTQ3ODEtYjdiZC04Yjk2ZjVhNTEwMGQSBWxvY2Fs",
    email: "jerry@the-smiths.com",
    ..BETH
};

const TODO: &str = "7240d0db-8ff0-41ec-98b2-34a096273b9f";

impl TodoUser {
    /// The status by which Envoy answers a request of the user.
    fn status(&self, mesh: &Mesh, path: &str, headers: &[(&str, &str)]) -> u16 {
        let own = [("user", self.id), ("email", self.email), ("roles", self.roles)];
        let headers: Vec<String> =
            own.iter().chain(headers).map(|(name, value)| format!("x-{name}: {value}")).collect();
        let response = mesh.get(path, &headers.iter().map(String::as_str).collect::<Vec<_>>());
        let is_denied = response.body.contains("denied by the decision service");
        assert_eq!(is_denied, response.status == 403, "{headers:?}: {response:?}");
        response.status
    }
}

/// The decisions are those of `interop/authzen-todo-backend/test/decisions-1.1-preview.json` of openid/authzen.
#[test]
fn cerbos_decides_about_requests_of_envoy() {
    if !is_there() {
        return;
    }
    let Some(cerbos) = Cerbos::start() else { return };
    let mesh = Mesh::start(&asking_pdp(&cerbos.url()), &[], &[]);
    let status = |is_allowed: bool| if is_allowed { 200 } else { 403 };
    for user in [RICK, MORTY, SUMMER, BETH, JERRY] {
        let other = if user.email == RICK.email { MORTY.email } else { RICK.email };
        let decisions = [
            ("can_read_user", "user", BETH.email, "", true),
            ("can_read_user", "user", user.email, "", true),
            ("can_read_todos", "todo", "todo-1", "", true),
            ("can_create_todo", "todo", "todo-1", "", user.may_create),
            ("can_update_todo", "todo", TODO, other, user.may_change_others),
            ("can_update_todo", "todo", TODO, user.email, user.may_change_own),
            ("can_delete_todo", "todo", TODO, other, user.may_change_others),
            ("can_delete_todo", "todo", TODO, user.email, user.may_change_own),
        ];
        for (action, entity_type, id, owner, is_allowed) in decisions {
            let headers = [("action", action), ("type", entity_type), ("id", id), ("owner", owner)];
            for path in ["/configured", "/discovered"] {
                let answered = user.status(&mesh, path, &headers);
                assert_eq!(answered, status(is_allowed), "{} {path} {headers:?}", user.email);
            }
        }
    }
    let action = [("action", "can_update_todo"), ("type", "todo"), ("id", TODO)];
    for (user, second, is_allowed) in [(RICK, JERRY, true), (MORTY, MORTY, false), (JERRY, JERRY, false)] {
        let owners = [("owner", RICK.email), ("second-owner", second.email)];
        let answered = user.status(&mesh, "/two", &[&action[..], &owners].concat());
        assert_eq!(answered, status(is_allowed), "{}", user.email);
    }
    // Cerbos rejects a subject without an id.
    let read = [("action", "can_read_todos"), ("type", "todo"), ("id", "todo-1")];
    assert_eq!(TodoUser { id: "", ..RICK }.status(&mesh, "/configured", &read), 503);
    drop(cerbos);
    for path in ["/configured", "/discovered"] {
        assert_eq!(RICK.status(&mesh, path, &read), 503);
    }
}

/// Asks an external authorization server about all requests.
fn asking_server(address: &str) -> String {
    format!(
        "
kind: handler
metadata: {{name: other, namespace: istio-system}}
spec: {{compiledAdapter: extauthz, params: {{url: 'http://{address}', timeout: 5s}}}}
---
kind: instance
metadata: {{name: request, namespace: istio-system}}
spec:
  compiledTemplate: authorization
  params: {{action: {{method: request.method, path: request.path}}}}
---
kind: rule
metadata: {{name: ask, namespace: istio-system}}
spec: {{actions: [{{handler: other, instances: [request]}}]}}
"
    )
}

#[test]
fn a_client_of_envoy_receives_the_denial_of_another_server() {
    if !is_there() {
        return;
    }
    let directory = configured(DENYING);
    let other = Server::start(&["--config", directory.path().to_str().unwrap()]);
    other.until("/readyz", "\r\n\r\nready");
    let mesh = Mesh::start(&asking_server(&other.grpc), &[], &[]);
    assert_eq!(mesh.get("/shop", &[]).status, 200);
    let denied = mesh.get("/admin?page=1", &[]);
    assert_eq!((denied.status, denied.body.as_str()), (403, r#"{"error": "no"}"#));
    assert_eq!(denied.header("content-type"), Some("application/json"));
    drop(other);
    assert_eq!(mesh.get("/shop", &[]).status, 503);
}

#[test]
fn another_server_receives_the_body_and_its_metadata_reaches_envoy() {
    if !is_there() {
        return;
    }
    let other = Recorder::start(|_| Ok(answer_with_metadata(0, &[("user", "alice")])));
    let config = asking_server(&other.address)
        .replace("path: request.path}", "path: request.path, properties: {':body': 'request.body | \"\"'}}");
    // Clients see the metadata in headers.
    let shown = |bootstrap: String| {
        let header = |name: &str, path: &str| {
            let value = format!("'%DYNAMIC_METADATA(envoy.filters.http.ext_authz:{path})%'");
            format!("{{header: {{key: {name}, value: {value}}}}}")
        };
        let headers = [header("x-user", "user"), header("x-outcome", "mixer_adapter:outcome")].join(", ");
        let name = "            name: routes\n";
        assert!(bootstrap.contains(name), "{bootstrap}");
        bootstrap.replace(name, &format!("{name}            response_headers_to_add: [{headers}]\n"))
    };
    let mesh = Mesh::start_before(&config, &[], &[], &echo(), shown);
    let head = "POST /shop HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 3\r\n\r\n";
    let response = raw(&mesh.front(), &format!("{head}a=b"));
    let shown = ["x-user", "x-outcome"].map(|name| response.header(name));
    assert_eq!((response.status, shown), (200, [Some("alice"), Some("allowed")]));
    let call = other.calls().pop().unwrap();
    let attributes = CheckRequest::decode(call.message).unwrap().attributes.unwrap();
    assert_eq!(attributes.request.unwrap().http.unwrap().body, "a=b");
}
