//! A real Caddy as the service of HTTP.

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};

use mixer_adapter::testing::{FakeHandler, FakeMixer};
use mixer_adapter_core::{Code, DirectHttpResponse, prost::Message as _};
use mixer_adapter_templates::{
    Authorization,
    authorization::{ActionMsg, InstanceMsg},
};
use tempfile::TempDir;
use tokio::{net::TcpStream, time::sleep};

use crate::ExtAuthz;

/// A Caddy that answers forward authentication at `/auth`, and everything below `/check` as a service of HTTP.
struct Caddy {
    child: Child,
    url: String,
    _directory: TempDir,
}

impl Drop for Caddy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Caddy {
    /// Starts one; `None` if it cannot be installed.
    async fn start() -> Option<Self> {
        let program = test_debian::unpacked("caddy", "caddy")?;
        let directory = TempDir::new().unwrap();
        let address = format!("127.0.0.1:{}", test_debian::free_port());
        let sites = format!(
            r#"{{
    admin off
    auto_https off
}}
http://{address} {{
    @closed header X-Forwarded-Uri /admin*
    handle /auth {{
        header @closed Content-Type application/json
        respond @closed `{{"error": "only for admins"}}` 403
        respond 204
    }}
    handle /check/admin* {{
        redir https://login.example.com/ 302
    }}
    handle /check/* {{
        respond 200
    }}
}}
"#
        );
        let file = directory.path().join("Caddyfile");
        fs::write(&file, sites).unwrap();
        let mut command = Command::new(program);
        command.args(["run", "--adapter", "caddyfile", "--config"]).arg(file).env("HOME", directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let caddy =
            Self { child: command.spawn().unwrap(), url: format!("http://{address}"), _directory: directory };
        let connected = async {
            while TcpStream::connect(&address).await.is_err() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), connected).await.expect("the Caddy does not start");
        Some(caddy)
    }

    fn handler(&self, path: &str, protocol: &str) -> FakeHandler {
        let params = format!("{{url: '{}{path}', protocol: {protocol}, timeout: 10s}}", self.url);
        FakeMixer::with::<ExtAuthz>().params(&*params)
    }
}

fn request(path: &str) -> InstanceMsg {
    let action = ActionMsg { method: "GET".into(), path: path.into(), ..ActionMsg::default() };
    InstanceMsg { action: Some(action), ..InstanceMsg::default() }
}

/// The response to the client of a denied request.
async fn denied(handler: &FakeHandler, path: &str) -> DirectHttpResponse {
    let answer = handler.check::<Authorization>(request(path)).await;
    answer.expect_denied(Code::PermissionDenied, "denied by the authorization service");
    let result = handler.call::<Authorization>(request(path)).await;
    let status = result.expect_ok().status.clone().unwrap();
    DirectHttpResponse::decode(status.details[0].value.clone()).unwrap()
}

#[tokio::test]
async fn caddy_decides_by_forward_authentication_and_by_http() {
    let Some(caddy) = Caddy::start().await else { return };
    let forward = caddy.handler("/auth", "FORWARD_AUTH");
    forward.check::<Authorization>(request("/shop")).await.expect_allowed();
    let response = denied(&forward, "/admin?page=1").await;
    assert_eq!((response.code, response.body.as_str()), (403, r#"{"error": "only for admins"}"#));
    assert_eq!(response.headers["content-type"], "application/json");
    let http = caddy.handler("/check", "HTTP");
    http.check::<Authorization>(request("/shop")).await.expect_allowed();
    let response = denied(&http, "/admin/users").await;
    assert_eq!((response.code, response.headers["location"].as_str()), (302, "https://login.example.com/"));
}
