//! The decisions of a real Cerbos about the todo application, the interoperability scenario of the AuthZEN working group.

use mixer_adapter::testing::{FakeHandler, FakeMixer};
use mixer_adapter_core::{Code, value::Value};
use mixer_adapter_templates::{
    Authorization,
    authorization::{ActionMsg, InstanceMsg, SubjectMsg},
};
use test_debian::Cerbos;

use crate::AuthZen;

const RICK: (&str, &str) = ("rick@the-citadel.com", "admin,evil_genius");
const MORTY: (&str, &str) = ("morty@the-citadel.com", "editor");
const BETH: (&str, &str) = ("beth@the-smiths.com", "viewer");

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
    let Some(cerbos) = Cerbos::start() else { return };
    for discovery in [false, true] {
        let params = format!(
            "{{url: '{}', discovery: {discovery}, groups_property: cerbos.roles, timeout: 10s}}",
            cerbos.url()
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
