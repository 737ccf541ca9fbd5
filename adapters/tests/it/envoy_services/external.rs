//! Other services that decide about requests through Envoy.

use super::{
    mesh::{Mesh, configured},
    support::{Server, debian::Cerbos, envoy::is_there},
};
use crate::external_decisions::DENYING;

/// Asks a decision service about the action and the owner that headers name.
fn asking_pdp(url: &str) -> String {
    format!(
        r#"
kind: handler
metadata: {{name: pdp, namespace: istio-system}}
spec: {{compiledAdapter: authzen, params: {{url: '{url}', groupsProperty: cerbos.roles, timeout: 5s}}}}
---
kind: instance
metadata: {{name: access, namespace: istio-system}}
spec:
  compiledTemplate: authorization
  params:
    subject:
      user: request.headers["x-user"]
      groups: request.headers["x-roles"]
      properties:
        email: request.headers["x-user"]
    action:
      method: request.headers["x-action"]
      path: request.url_path
      properties:
        resource.type: '"todo"'
        resource.ownerID: request.headers["x-owner"] | ""
---
kind: rule
metadata: {{name: ask, namespace: istio-system}}
spec: {{actions: [{{handler: pdp, instances: [access]}}]}}
"#
    )
}

#[test]
fn cerbos_decides_about_requests_of_envoy() {
    if !is_there() {
        return;
    }
    let Some(cerbos) = Cerbos::start() else { return };
    let mesh = Mesh::start(&asking_pdp(&cerbos.url()), &[], &[]);
    let [rick, morty, beth] = ["rick@the-citadel.com", "morty@the-citadel.com", "beth@the-smiths.com"];
    for (user, roles, action, owner, status) in [
        (beth, "viewer", "can_read_todos", rick, 200),
        (beth, "viewer", "can_create_todo", beth, 403),
        (morty, "editor", "can_create_todo", morty, 200),
        (morty, "editor", "can_update_todo", morty, 200),
        (morty, "editor", "can_update_todo", rick, 403),
        (morty, "editor", "can_delete_todo", rick, 403),
        (rick, "admin,evil_genius", "can_update_todo", morty, 200),
        (rick, "admin,evil_genius", "can_delete_todo", morty, 200),
    ] {
        let headers = [("user", user), ("roles", roles), ("action", action), ("owner", owner)];
        let headers = headers.map(|(name, value)| format!("x-{name}: {value}"));
        let response = mesh.get("/todos/7", &headers.each_ref().map(String::as_str));
        assert_eq!(response.status, status, "{headers:?}: {response:?}");
        let is_denied = response.body.contains("denied by the decision service");
        assert_eq!(is_denied, status == 403, "{headers:?}: {response:?}");
    }
    drop(cerbos);
    let headers = ["x-user: morty", "x-roles: editor", "x-action: can_read_todos"];
    assert_eq!(mesh.get("/todos", &headers).status, 503);
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
