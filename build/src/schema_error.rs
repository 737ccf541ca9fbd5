//! Faults of templates and adapter configurations.

use crate::template::Variety;

/// One fault of a proto with its position, displayed as `file:line:column: reason`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[error("{file}:{line}:{column}: {reason}")]
pub struct ProtoError {
    /// The path of the file, as given by the caller.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// The fault.
    pub reason: SchemaError,
}

/// A fault of a template or an adapter's configuration; the text says how to correct it.
///
/// "Stricter than mixgen" marks faults that Istio's own generator accepts: it then generates wrong or invalid protos, or
/// silently drops a part of the file (docs/behaviour/code-generator.md#faults-that-mixgen-lets-through).
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The syntax is proto2, or an edition.
    #[error("must be proto3: begin the file with `syntax = \"proto3\";`")]
    NotProto3,
    /// There is no package.
    #[error("has no package: add `package <name>;`, its last part names the template or adapter")]
    NoPackage,
    /// A configuration without `Params`.
    #[error(
        "has no message `Params`: Mixer takes the configuration from a message of that name (empty is fine)"
    )]
    NoParams,
    /// A configuration that imports a file of another package, for which there is no Rust type.
    #[error(
        "imports `{import}` of package `{package}`: only files of the same package can be imported, besides \
             google/protobuf and policy/v1beta1"
    )]
    ForeignImport {
        /// The file.
        import: String,
        /// Its package.
        package: String,
    },
    /// The last part of the package is not a valid template name.
    #[error(
        "the last part of the package, `{segment}`, names the template and must consist of letters: ^[a-zA-Z]+$"
    )]
    PackageName {
        /// The last part.
        segment: String,
    },
    /// `template_name` is not a valid template name.
    #[error("template_name `{name}` must consist of letters: ^[a-zA-Z]+$")]
    TemplateName {
        /// The name.
        name: String,
    },
    /// No template_variety.
    #[error(
        "has no template_variety: import \"mixer/adapter/model/v1beta1/extensions.proto\" and add \
             `option (istio.mixer.adapter.model.v1beta1.template_variety) = TEMPLATE_VARIETY_CHECK;`, or another variety"
    )]
    NoVariety,
    /// An imported file has a template_variety too.
    #[error("imports `{import}`, which has a template_variety too: only one file of a template may have it")]
    SecondVariety {
        /// The file.
        import: String,
    },
    /// No message `Template`.
    #[error("has no message `Template`: its fields are the input of adapters")]
    NoTemplate,
    /// No message `OutputTemplate`.
    #[error(
        "has no message `OutputTemplate`: a template of variety {variety} needs one for the answer of adapters"
    )]
    NoOutputTemplate {
        /// The template's variety.
        variety: Variety,
    },
    /// An `OutputTemplate` in a template without output. Stricter than mixgen, which drops it.
    #[error(
        "a template of variety {variety} has no output: remove `OutputTemplate`, or make the variety \
             ATTRIBUTE_GENERATOR or CHECK_WITH_OUTPUT"
    )]
    UselessOutputTemplate {
        /// The template's variety.
        variety: Variety,
    },
    /// An element that is not a message. Stricter than mixgen, which drops it.
    #[error("a template must consist of messages: remove the {kind} `{name}`")]
    NotAMessage {
        /// `enum`, `service` or `extension`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A nested message. Stricter than mixgen, whose output does not compile.
    #[error("`{name}` is declared in another message: move it to the top level of the file")]
    Nested {
        /// The inner message or enum.
        name: String,
    },
    /// A message whose generated name is already used. Stricter than mixgen, whose output does not compile.
    #[error(
        "the message `{name}` would be generated twice, for this message and for another: rename this one"
    )]
    Collision {
        /// The generated name.
        name: String,
    },
    /// A template that is named like a message in its file. Stricter than mixgen.
    #[error(
        "a template cannot have the name `{name}` of one of its messages: change the last part of the package, \
             or template_name"
    )]
    TemplateCollision {
        /// The name.
        name: String,
    },
    /// A field with the name `name`.
    #[error("a field cannot have the name `{name}`, because every instance has a field `name`: rename it")]
    Name {
        /// The name as written.
        name: String,
    },
    /// A reserved number. Stricter than mixgen, whose output does not compile.
    #[error("number {number} is reserved for a generated field: use another one")]
    Number {
        /// The number.
        number: u32,
    },
    /// A field of a oneof. Stricter than mixgen, which generates a plain field.
    #[error("a template cannot have a oneof such as `{oneof}`: use plain fields")]
    Oneof {
        /// The oneof.
        oneof: String,
    },
    /// An `optional` field. Stricter than mixgen, which predates them.
    #[error(
        "a template cannot have `optional` fields, which Mixer's encoder does not know: remove `optional`"
    )]
    Optional,
    /// A type that a template cannot have.
    #[error(
        "a template cannot have `{found}` here: use string, int64, double, bool, a message of this file, or Value, \
             IPAddress, TimeStamp, Duration, DNSName, EmailAddress, Uri of istio.policy.v1beta1, or a map of these by \
             string"
    )]
    FieldType {
        /// The type.
        found: String,
    },
    /// A repeated field of anything but a message of the file. Stricter than mixgen, whose `Type` and `InstanceParam`
    /// are then not repeated.
    #[error(
        "a template cannot have `repeated {found}`: use `map<string, {found}>`, or repeat a message of this file"
    )]
    Repeated {
        /// The type.
        found: String,
    },
    /// A map whose keys are not strings.
    #[error("the keys of a map in a template must be `string`, not `{found}`")]
    MapKey {
        /// The type.
        found: String,
    },
    /// A `Value` in an attribute generator.
    #[error("an attribute generator cannot have `Value` fields: use a definite type such as string")]
    ValueInGenerator,
    /// A field that `OutputTemplate` cannot have.
    #[error(
        "`OutputTemplate` cannot have `{found}`: use string, int64, double, bool, map<string, string>, or \
             IPAddress, TimeStamp, Duration, DNSName, EmailAddress, Uri of istio.policy.v1beta1"
    )]
    OutputType {
        /// The type.
        found: String,
    },
}
