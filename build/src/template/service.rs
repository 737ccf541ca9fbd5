//! Generation of the handler service proto, with the method that Mixer calls and its messages
//! (docs/behaviour/code-generator.md#services-and-messages).

use std::fmt::{self, Display, Formatter};

use super::{
    Variety,
    field::{ATTRIBUTE_BINDINGS, NAME},
    model::{Kind, Message, Model, Shape, View},
};

const MODEL: &str = ".istio.mixer.adapter.model.v1beta1";

/// The service proto of a template. Names of other packages are absolute, because a template's own package can contain a part
/// named `istio`.
pub(crate) struct ServiceProto<'a>(pub(crate) &'a Model);

impl Display for ServiceProto<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.head(f)?;
        self.service(f)?;
        if let Some(output) = &self.0.output {
            message(f, "OutputMsg", output, View::Instance, None)?;
        }
        for view in [View::Instance, View::Type, View::Param] {
            let name = if view == View::Instance { "InstanceMsg" } else { view.suffix() };
            message(f, name, &self.0.template, view, self.extra_field(view).as_deref())?;
            for other in &self.0.messages {
                message(f, &format!("{}{}", other.name, view.suffix()), other, view, None)?;
            }
        }
        Ok(())
    }
}

impl ServiceProto<'_> {
    /// Returns the name of the file in descriptor sets, `listentry/template_handler_service.proto`.
    pub(crate) fn file_name(&self) -> String {
        format!("{}/template_handler_service.proto", self.0.package.replace('.', "/"))
    }

    fn head(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Model { package, name, variety, .. } = self.0;
        writeln!(f, "syntax = \"proto3\";\n\npackage {package};\n")?;
        writeln!(f, "import \"google/protobuf/any.proto\";")?;
        writeln!(f, "import \"mixer/adapter/model/v1beta1/extensions.proto\";")?;
        if let Some((_, file)) = variety.result() {
            writeln!(f, "import \"mixer/adapter/model/v1beta1/{file}\";")?;
        }
        if self.has(|kind| matches!(kind, Kind::Value | Kind::Policy(_))) {
            writeln!(f, "import \"policy/v1beta1/type.proto\";")?;
        }
        if self.has(|kind| matches!(kind, Kind::Value)) {
            writeln!(f, "import \"policy/v1beta1/value_type.proto\";")?;
        }
        writeln!(f, "\noption ({MODEL}.template_variety) = TEMPLATE_VARIETY_{variety};")?;
        writeln!(f, "option ({MODEL}.template_name) = \"{name}\";")
    }

    fn service(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Model { interface, name, variety, .. } = self.0;
        let response = self.0.response(|name| format!("{MODEL}.{name}"));
        writeln!(f, "\n// Adapters that handle `{name}` serve this.")?;
        writeln!(f, "service Handle{interface}Service {{")?;
        writeln!(f, "  // Called with instances of `{name}`.")?;
        writeln!(f, "  rpc Handle{interface}(Handle{interface}Request) returns ({response});\n}}")?;

        writeln!(f, "\n// A call with instances of `{name}`.\nmessage Handle{interface}Request {{")?;
        if *variety == Variety::Report {
            writeln!(f, "  // The instances.\n  repeated InstanceMsg instances = 1;")?;
        } else {
            writeln!(f, "  // The instance.\n  InstanceMsg instance = 1;")?;
        }
        writeln!(f, "  // The handler's configuration, or its session.")?;
        writeln!(f, "  .google.protobuf.Any adapter_config = 2;")?;
        writeln!(f, "  // The same for all attempts of one call.\n  string dedup_id = 3;")?;
        if *variety == Variety::Quota {
            writeln!(f, "  // The amounts asked for.\n  {MODEL}.QuotaRequest quota_request = 4;")?;
        }
        writeln!(f, "}}")?;
        if *variety == Variety::CheckWithOutput {
            writeln!(f, "\n// The answer to a call with `{name}`.\nmessage {response} {{")?;
            writeln!(f, "  // The answer to the check.\n  {MODEL}.CheckResult result = 1;")?;
            writeln!(f, "  // What becomes attributes.\n  OutputMsg output = 2;\n}}")?;
        }
        Ok(())
    }

    /// Returns the additional field of `Template`.
    fn extra_field(&self, view: View) -> Option<String> {
        match view {
            View::Instance => Some(format!("  // The instance's full name.\n  string name = {NAME};\n")),
            View::Param if self.0.variety == Variety::AttributeGenerator => Some(format!(
                "  // Attribute names, and expressions over the output.\n  map<string, string> attribute_bindings = \
                 {ATTRIBUTE_BINDINGS};\n"
            )),
            _ => None,
        }
    }

    fn has(&self, predicate: impl Fn(&Kind) -> bool) -> bool {
        let Model { template, output, messages, .. } = self.0;
        let messages = messages.iter().chain([template]).chain(output);
        messages.flat_map(|message| &message.fields).any(|field| match &field.shape {
            Shape::One(kind) | Shape::Map(kind) => predicate(kind),
            Shape::Repeated(_) => false,
        })
    }
}

fn message(
    f: &mut Formatter<'_>,
    name: &str,
    message: &Message,
    view: View,
    extra_field: Option<&str>,
) -> fmt::Result {
    writeln!(f)?;
    comment(f, "", &message.comment)?;
    writeln!(f, "message {name} {{")?;
    let extra_field = extra_field.unwrap_or_default();
    if view == View::Instance {
        f.write_str(extra_field)?;
    }
    for field in &message.fields {
        if let Some(proto_type) = field.proto_type(view) {
            comment(f, "  ", &field.comment)?;
            writeln!(f, "  {proto_type} {} = {};", field.name, field.number)?;
        }
    }
    if view != View::Instance {
        f.write_str(extra_field)?;
    }
    writeln!(f, "}}")
}

fn comment(f: &mut Formatter<'_>, indent: &str, text: &str) -> fmt::Result {
    text.lines().try_for_each(|line| writeln!(f, "{indent}//{line}"))
}
