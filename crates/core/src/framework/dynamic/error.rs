/// A descriptor that defines no usable template or configuration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DescriptorError {
    /// The text is not base64.
    #[error("the descriptor is not valid base64: {0}")]
    Base64(#[from] base64::DecodeError),
    /// The bytes are not a descriptor set.
    #[error("the descriptor is not a google.protobuf.FileDescriptorSet: {0}")]
    Undecodable(#[from] prost::DecodeError),
    /// The set has no file.
    #[error("the descriptor is not a google.protobuf.FileDescriptorSet: it has no file")]
    Empty,
    /// A file refers to something that does not exist, or two files define the same.
    #[error("the descriptors are inconsistent: {0}")]
    Inconsistent(#[from] prost_reflect::DescriptorError),
    /// A file has another syntax than proto2 and proto3.
    #[error("{file}: syntax {syntax:?} is not supported; use proto2 or proto3")]
    UnknownSyntax {
        /// The file.
        file: String,
        /// The syntax.
        syntax: String,
    },
    /// A part of a package's name, or the name of a message, an enum or a service, has other characters than letters, digits and
    /// underscores, or begins with a digit.
    #[error("the descriptors have the name {0:?}: names consist of letters, digits and underscores")]
    InvalidIdentifier(String),
    /// The set has no configuration message.
    #[error("the descriptor has no message `Params`, so it is not that of an adapter's configuration")]
    NoParams,
    /// The set lacks a message.
    #[error("the descriptor has no message `{0}`")]
    NoMessage(String),
    /// No file is a template.
    #[error("no file has the option template_variety, so this is not the descriptor of a template")]
    NoVariety,
    /// Two files are templates.
    #[error("{first} and {second} both have the option template_variety")]
    TwoVarieties {
        /// One file.
        first: String,
        /// The other.
        second: String,
    },
    /// The number of the variety is not defined.
    #[error("{file}: template_variety {number} is not defined")]
    UnknownVariety {
        /// The file of the template.
        file: String,
        /// The number.
        number: i32,
    },
    /// The template has no name.
    #[error(
        "{file} has no option template_name: give the descriptor of the generated handler service, not of template.proto"
    )]
    NoName {
        /// The file of the template.
        file: String,
    },
    /// The template's name has other characters than letters.
    #[error("{file}: template_name {name:?} must consist of letters only")]
    InvalidName {
        /// The file of the template.
        file: String,
        /// The name.
        name: String,
    },
    /// The set has no handler service.
    #[error("the descriptor has no service `Handle..` with a method")]
    NoService,
    /// The name of the handler service or of its method is not valid.
    #[error("{0:?} is not a valid path of a gRPC method")]
    InvalidMethod(String),
    /// The request has no instances.
    #[error("{0} has no message field `instance` or `instances`")]
    NoInstance(String),
}
