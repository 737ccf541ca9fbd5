//! The model of a template.

use super::Variety;

#[derive(Debug)]
pub(crate) struct Model {
    /// The package in lower case, which all generated messages have.
    pub(crate) package: String,
    /// `ListEntry`, of `HandleListEntryService`.
    pub(crate) interface: String,
    /// `listentry`
    pub(crate) name: String,
    pub(crate) variety: Variety,
    pub(crate) template: Message,
    pub(crate) output: Option<Message>,
    /// The other messages of the file.
    pub(crate) messages: Vec<Message>,
}

#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) name: String,
    pub(crate) comment: String,
    pub(crate) fields: Vec<Field>,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) number: u32,
    pub(crate) comment: String,
    pub(crate) shape: Shape,
}

#[derive(Debug)]
pub(crate) enum Shape {
    One(Kind),
    /// A map with string keys.
    Map(Kind),
    /// A message of the file, by name.
    Repeated(String),
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// A scalar type such as `string`.
    Scalar(String),
    /// A type such as `.istio.policy.v1beta1.IPAddress`.
    Policy(String),
    /// A type that the configuration of an instance determines.
    Value,
    /// A message of the file, by name.
    Message(String),
}

/// The kinds of messages generated from each message of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    /// `InstanceMsg` and `OutputMsg`, which are sent.
    Instance,
    /// `Type`, which has only the types of `Value` fields.
    Type,
    /// `InstanceParam`, the form in configuration.
    Param,
}

impl Model {
    /// Returns the type of the response; `shared` formats the name of a message of `istio.mixer.adapter.model.v1beta1`.
    pub(crate) fn response(&self, shared: impl Fn(&str) -> String) -> String {
        match (self.variety, self.variety.result()) {
            (Variety::CheckWithOutput, _) => format!("Handle{}Response", self.interface),
            (_, Some((result, _))) => shared(result),
            (_, None) => "OutputMsg".to_owned(),
        }
    }
}

impl View {
    /// Returns the suffix of the names of generated messages.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Instance => "Msg",
            Self::Type => "Type",
            Self::Param => "InstanceParam",
        }
    }
}

impl Field {
    /// Returns the type of the field in a view; `None` if the view does not have it.
    pub(crate) fn proto_type(&self, view: View) -> Option<String> {
        match &self.shape {
            Shape::One(kind) => kind.proto_type(view),
            Shape::Map(kind) => kind.proto_type(view).map(|value| format!("map<string, {value}>")),
            Shape::Repeated(message) => {
                let repeated = if view == View::Param { "" } else { "repeated " };
                Some(format!("{repeated}{message}{}", view.suffix()))
            }
        }
    }
}

impl Kind {
    fn proto_type(&self, view: View) -> Option<String> {
        match (self, view) {
            (Self::Message(message), _) => Some(format!("{message}{}", view.suffix())),
            (Self::Scalar(name) | Self::Policy(name), View::Instance) => Some(name.clone()),
            (Self::Value, View::Instance) => Some(".istio.policy.v1beta1.Value".to_owned()),
            (Self::Value, View::Type) => Some(".istio.policy.v1beta1.ValueType".to_owned()),
            (Self::Scalar(_) | Self::Policy(_), View::Type) => None,
            (_, View::Param) => Some("string".to_owned()),
        }
    }
}
