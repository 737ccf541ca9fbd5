//! The pages of the admin ports: each is one document that connects to its own port only, and shows its JSON.

use std::sync::LazyLock;

use axum::{
    http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
    response::{Html, IntoResponse as _, Response},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use sha2::{Digest as _, Sha256};

/// The page of `serve`.
pub(super) static SERVER: LazyLock<Page> =
    LazyLock::new(|| Page::new("mixer-adapter", include_str!("server.html"), include_str!("server.js")));

/// The page of `source`.
pub(crate) static SOURCE: LazyLock<Page> = LazyLock::new(|| {
    Page::new("mixer-adapter source", include_str!("source.html"), include_str!("source.js"))
});

/// The document around the parts of a page, which are named in double braces.
const SHELL: &str = include_str!("shell.html");
const STYLE: &str = include_str!("page.css");
/// The code that the scripts of all pages share.
const SCRIPT: &str = include_str!("page.js");

/// A document, with its content security policy.
pub(crate) struct Page {
    document: String,
    policy: String,
}

impl Page {
    fn new(title: &str, body: &str, script: &str) -> Self {
        let script = format!("{SCRIPT}\n{script}");
        let parts = [("title", title), ("style", STYLE), ("body", body), ("script", &script)];
        let document = parts.iter().fold(SHELL.to_owned(), |document, (name, part)| {
            document.replace(&format!("{{{{{name}}}}}"), part)
        });
        // Only this style and this script, whatever a name or a fault may contain.
        let policy = format!(
            "default-src 'none'; style-src '{}'; script-src '{}'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            source_of(STYLE),
            source_of(&script)
        );
        Self { document, policy }
    }

    pub(crate) fn response(&'static self) -> Response {
        let headers = [
            (CONTENT_SECURITY_POLICY, &*self.policy),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (REFERRER_POLICY, "no-referrer"),
            (CACHE_CONTROL, "no-store"),
        ];
        (headers, Html(&*self.document)).into_response()
    }
}

/// The name of a text in a content security policy.
fn source_of(text: &str) -> String {
    format!("sha256-{}", BASE64_STANDARD.encode(Sha256::digest(text)))
}
