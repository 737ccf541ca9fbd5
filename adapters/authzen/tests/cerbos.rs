//! The decisions of a real Cerbos about the todo application, the interoperability scenario of the AuthZEN working group.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    process::{Child, Command, Stdio},
    time::Duration,
};

use mixer_adapter::testing::{FakeHandler, FakeMixer};
use mixer_adapter_authzen::AuthZen;
use mixer_adapter_core::{Code, value::Value};
use mixer_adapter_templates::{
    Authorization,
    authorization::{ActionMsg, InstanceMsg, SubjectMsg},
};
use tempfile::TempDir;
use tokio::{net::TcpStream, time::sleep};

const RICK: (&str, &str) = ("rick@the-citadel.com", "admin,evil_genius");
const MORTY: (&str, &str) = ("morty@the-citadel.com", "editor");
const BETH: (&str, &str) = ("beth@the-smiths.com", "viewer");

/// A Cerbos with the rules of the application, which ends with this.
struct Cerbos {
    child: Child,
    url: String,
    _directory: TempDir,
}

impl Drop for Cerbos {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Cerbos {
    /// Starts one; `None` if it cannot be installed.
    async fn start() -> Option<Self> {
        let program = test_debian::npm_program("@cerbos/cerbos-linux-x64", "0.55.0", "cerbos-linux-x64")?;
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("todo.yaml"), include_str!("todo.yaml")).unwrap();
        let [http, grpc] = [test_debian::free_port(), test_debian::free_port()];
        let mut command = Command::new(program);
        command.args(["server", "--set", &format!("server.httpListenAddr=127.0.0.1:{http}")]);
        command.args(["--set", &format!("server.grpcListenAddr=127.0.0.1:{grpc}")]);
        command.args(["--set", "telemetry.disabled=true", "--set", "storage.driver=disk", "--set"]);
        command.arg(format!("storage.disk.directory={}", directory.path().display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().unwrap();
        let cerbos = Self { child, url: format!("http://127.0.0.1:{http}"), _directory: directory };
        let address = format!("127.0.0.1:{http}");
        while TcpStream::connect(&address).await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
        Some(cerbos)
    }
}

fn may(user: (&str, &str), action: &str, owner: &str) -> InstanceMsg {
    let property = |name: &str, value: &str| (name.to_owned(), Value::from(value));
    InstanceMsg {
        subject: Some(SubjectMsg {
            user: user.0.into(),
            groups: user.1.into(),
            properties: [property("email", user.0)].into(),
        }),
        action: Some(ActionMsg {
            method: action.into(),
            properties: [
                property("resource.type", "todo"),
                property("resource.id", "7240d0db-8ff0-41ec-98b2-34a096273b9f"),
                property("resource.ownerID", owner),
            ]
            .into(),
            ..ActionMsg::default()
        }),
        ..InstanceMsg::default()
    }
}

async fn decide(handler: &FakeHandler, user: (&str, &str), action: &str, owner: &str, is_allowed: bool) {
    let answer = handler.check::<Authorization>(may(user, action, owner)).await;
    if is_allowed {
        answer.expect_allowed();
    } else {
        answer.expect_denied(Code::PermissionDenied, "denied by the decision service");
    }
}

#[tokio::test]
async fn cerbos_decides_about_the_todo_application() {
    let Some(cerbos) = Cerbos::start().await else { return };
    for discovery in [false, true] {
        let params = format!(
            "{{url: '{}', discovery: {discovery}, groups_property: cerbos.roles, timeout: 10s}}",
            cerbos.url
        );
        let handler = FakeMixer::with::<AuthZen>().params(&*params);
        for (user, create) in [(RICK, true), (MORTY, true), (BETH, false)] {
            decide(&handler, user, "can_read_todos", RICK.0, true).await;
            decide(&handler, user, "can_create_todo", user.0, create).await;
        }
        for action in ["can_update_todo", "can_delete_todo"] {
            decide(&handler, RICK, action, MORTY.0, true).await;
            decide(&handler, MORTY, action, MORTY.0, true).await;
            decide(&handler, MORTY, action, RICK.0, false).await;
            decide(&handler, BETH, action, BETH.0, false).await;
        }
        // Cerbos rejects a subject without an id.
        let answer = handler.check::<Authorization>(may(("", "admin"), "can_read_todos", RICK.0)).await;
        answer.expect_denied(Code::Unavailable, "the decision service made no decision");
    }
}
