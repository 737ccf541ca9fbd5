use prost_reflect::FileDescriptor;

use crate::{source::Source, source_info, template::Variety};

/// One fault of a proto, and where it is. Its text is `file:line:column: reason`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {reason}")]
pub struct Refusal {
    /// The file, by the path it was given by.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// What is wrong and what to do.
    pub reason: Reason,
}

/// What is wrong with a template or an adapter's configuration, and what to do.
///
/// "Stricter than mixgen" marks what Istio's own generator lets through: it then makes wrong or broken protos, or drops
/// what was written without a word (docs/behaviour/code-generator.md#faults-that-mixgen-lets-through).
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
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
    /// A configuration that imports a file of another package, for which no Rust could be found.
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
    /// The last part of the package is no template name.
    #[error(
        "the last part of the package, `{segment}`, names the template and may hold letters only: ^[a-zA-Z]+$"
    )]
    PackageName {
        /// The last part.
        segment: String,
    },
    /// `template_name` is no template name.
    #[error("template_name `{name}` may hold letters only: ^[a-zA-Z]+$")]
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
    #[error("has no message `Template`: its fields are what adapters are handed")]
    NoTemplate,
    /// No message `OutputTemplate`.
    #[error(
        "has no message `OutputTemplate`: a template of variety {variety} needs one for what adapters answer"
    )]
    NoOutputTemplate {
        /// The template's variety.
        variety: Variety,
    },
    /// An `OutputTemplate` nobody would read. Stricter than mixgen, which drops it.
    #[error(
        "a template of variety {variety} has no output: remove `OutputTemplate`, or make the variety \
             ATTRIBUTE_GENERATOR or CHECK_WITH_OUTPUT"
    )]
    UselessOutputTemplate {
        /// The template's variety.
        variety: Variety,
    },
    /// Something that is no message. Stricter than mixgen, which drops it.
    #[error("a template holds messages only: remove the {kind} `{name}`")]
    NotAMessage {
        /// `enum`, `service` or `extension`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// A message in a message. Stricter than mixgen, whose output does not compile.
    #[error("`{name}` is declared in another message: move it to the top of the file")]
    Nested {
        /// The inner message or enum.
        name: String,
    },
    /// A message whose generated name is taken. Stricter than mixgen, whose output does not compile.
    #[error("the message `{name}` would be generated for this one and for another: rename this one")]
    Collision {
        /// The generated name.
        name: String,
    },
    /// A template that would be called as one of its messages. Stricter than mixgen.
    #[error(
        "a template cannot be called `{name}`, it has a message of that name: change the last part of the package, \
             or template_name"
    )]
    TemplateCollision {
        /// The name.
        name: String,
    },
    /// A field called `name`.
    #[error("a field cannot be called `{name}`, every instance has a `name` already: call it something else")]
    Name {
        /// The name as written.
        name: String,
    },
    /// A reserved number. Stricter than mixgen, whose output does not compile.
    #[error("number {number} is reserved for a generated field: take another one")]
    Number {
        /// The number.
        number: u32,
    },
    /// A field of a oneof. Stricter than mixgen, which makes a plain field of it.
    #[error("templates cannot have a oneof such as `{oneof}`: make its fields plain ones")]
    Oneof {
        /// The oneof.
        oneof: String,
    },
    /// An `optional` field. Stricter than mixgen, which is older than those.
    #[error("templates cannot have `optional` fields: remove the word, Mixer's encoder does not know it")]
    Optional,
    /// A type templates cannot have.
    #[error(
        "templates cannot have `{found}` here: use string, int64, double, bool, a message of this file, or Value, \
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
        "templates cannot have `repeated {found}`: use `map<string, {found}>`, or repeat a message of this file"
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
    #[error(
        "an attribute generator cannot have `Value` fields: give the field a type of its own, such as string"
    )]
    ValueInGenerator,
    /// A field `OutputTemplate` cannot have.
    #[error(
        "`OutputTemplate` cannot have `{found}`: use string, int64, double, bool, map<string, string>, or \
             IPAddress, TimeStamp, Duration, DNSName, EmailAddress, Uri of istio.policy.v1beta1"
    )]
    OutputType {
        /// The type.
        found: String,
    },
}

/// The faults of one file, as they are found.
pub(crate) struct Refusals<'a> {
    path: String,
    file: &'a FileDescriptor,
    found: Vec<Refusal>,
}

impl<'a> Refusals<'a> {
    pub(crate) fn of(source: &'a Source) -> Self {
        Self { path: source.path.display().to_string(), file: &source.file, found: Vec::new() }
    }

    /// Notes a fault of the element at that path; `&[]` is the file itself.
    pub(crate) fn add(&mut self, path: &[i32], reason: Reason) {
        let (line, column) = source_info::position(self.file.file_descriptor_proto(), path);
        self.found.push(Refusal { file: self.path.clone(), line, column, reason });
    }

    /// The value, if there were no faults; faults come in the order of the file.
    pub(crate) fn or<T>(mut self, value: Option<T>) -> Result<T, crate::Error> {
        self.found.sort_by_key(|refusal| (refusal.line, refusal.column));
        match value {
            Some(value) if self.found.is_empty() => Ok(value),
            _ => Err(crate::Error::Refused(self.found)),
        }
    }
}
