//! The Rust declaration of a template.

use std::fmt::{self, Display, Formatter};

use super::model::Model;
use crate::{comments, rust::ROOT};

/// The call of `declare_template!` for the generated messages.
pub(crate) struct Declaration<'a>(pub(crate) &'a Model);

impl Display for Declaration<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Model { package, interface, name, variety, template, .. } = self.0;
        let response = self
            .0
            .response(|name| format!("{}::proto::istio::mixer::adapter::model::v1beta1::{name}", *ROOT));
        writeln!(f, "{}::declare_template! {{", *ROOT)?;
        for line in comments::rustdoc(&template.comment) {
            writeln!(f, "    /// {line}")?;
        }
        writeln!(
            f,
            "    {variety:?} {interface} {{
        name: \"{name}\",
        package: \"{package}\",
        method: \"/{package}.Handle{interface}Service/Handle{interface}\",
        descriptor: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{package}.bin\")),
        comments: include_str!(concat!(env!(\"OUT_DIR\"), \"/{package}.comments\")),
        request: Handle{interface}Request,
        response: {response},
    }}
}}"
        )
    }
}
