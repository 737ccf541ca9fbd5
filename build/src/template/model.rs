//! A template as its file declares it.

use super::Variety;

pub(crate) struct Model {
    /// The package in lower case: that of all generated messages.
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

pub(crate) struct Message {
    pub(crate) name: String,
    pub(crate) comment: String,
    pub(crate) fields: Vec<Field>,
}

pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) number: u32,
    pub(crate) comment: String,
    pub(crate) shape: Shape,
}

pub(crate) enum Shape {
    One(Kind),
    /// By text keys.
    Map(Kind),
    /// A message of the file, by name.
    Repeated(String),
}

pub(crate) enum Kind {
    /// `string` and the like.
    Scalar(String),
    /// `.istio.policy.v1beta1.IPAddress` and the like.
    Policy(String),
    /// Of a type that the configuration of an instance chooses.
    Value,
    /// A message of the file, by name.
    Message(String),
}

/// The messages generated of each message of a template.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// `InstanceMsg` and `OutputMsg`: what is sent.
    Instance,
    /// `Type`: the types of what the configuration chooses; everything else is left out.
    Type,
    /// `InstanceParam`: what configuration writes.
    Param,
}

impl Model {
    /// The type adapters answer with; `shared` writes the name of one of `istio.mixer.adapter.model.v1beta1`.
    pub(crate) fn response(&self, shared: impl Fn(&str) -> String) -> String {
        match (self.variety, self.variety.result()) {
            (Variety::CheckWithOutput, _) => format!("Handle{}Response", self.interface),
            (_, Some((result, _))) => shared(result),
            (_, None) => "OutputMsg".to_owned(),
        }
    }
}

impl View {
    /// What the names of generated messages end in.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Instance => "Msg",
            Self::Type => "Type",
            Self::Param => "InstanceParam",
        }
    }
}

impl Field {
    /// The type of the field in that view; `None` where the view leaves it out.
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
