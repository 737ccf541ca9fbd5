use std::{collections::HashSet, sync::LazyLock};

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use prost::{Message, bytes::Bytes};
use prost_reflect::{DescriptorPool, FileDescriptor, MessageDescriptor};

use super::DescriptorError;

/// A `FileDescriptorSet` as in `template` and `adapter` resources.
///
/// Missing imports are added: files of Istio and Google from this crate, any other as an empty file. A real
/// Mixer does not need them either (docs/behaviour/configuration.md#what-a-template-descriptor-needs).
#[derive(Clone, Debug)]
pub struct DescriptorSet {
    pub(super) pool: DescriptorPool,
    /// In the order of the set.
    pub(super) files: Vec<File>,
}

/// The fields of `FileDescriptorProto` that are read here. Options are decoded from the wire, because prost-types drops
/// extensions.
#[derive(Clone, PartialEq, Message)]
pub(super) struct File {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, optional, tag = "2")]
    pub(super) package: Option<String>,
    #[prost(string, repeated, tag = "3")]
    pub(super) dependency: Vec<String>,
    #[prost(message, optional, tag = "8")]
    pub(super) options: Option<FileOptions>,
    #[prost(string, optional, tag = "12")]
    pub(super) syntax: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FileOptions {
    #[prost(int32, optional, tag = "72295727")]
    pub(super) template_variety: Option<i32>,
    #[prost(string, optional, tag = "72295888")]
    pub(super) template_name: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Set {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    file: Vec<Bytes>,
}

/// The files of Istio and Google, by their usual names.
static KNOWN: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(crate::proto::DESCRIPTORS).ok());

/// Returns a file of Istio or Google.
pub(in crate::framework) fn known_file(name: &str) -> Option<FileDescriptor> {
    let known = KNOWN.as_ref().and_then(|known| known.get_file_by_name(name));
    known.or_else(|| DescriptorPool::global().get_file_by_name(name))
}

impl DescriptorSet {
    /// Decodes a set.
    pub fn decode(set: impl Into<Bytes>) -> Result<Self, DescriptorError> {
        let mut set = Set::decode(set.into())?;
        let files: Vec<File> =
            set.file.iter().map(|file| File::decode(file.clone())).collect::<Result<_, _>>()?;
        if files.is_empty() {
            return Err(DescriptorError::Empty);
        }
        // prost-reflect 0.16.5 panics at an unknown syntax, such as editions.
        for File { name, syntax, .. } in &files {
            if let Some(syntax) =
                syntax.as_ref().filter(|syntax| !["proto2", "proto3"].contains(&syntax.as_str()))
            {
                return Err(DescriptorError::UnknownSyntax { file: name.clone(), syntax: syntax.clone() });
            }
        }
        set.file.extend(missing_imports(&files));
        let pool = DescriptorPool::decode(set.encode_to_vec().as_slice())?;
        check_names(&pool, &files)?;
        Ok(Self { pool, files })
    }

    /// Decodes a set in base64, as in resources: the standard alphabet, with or without padding and line breaks.
    pub fn from_base64(text: &str) -> Result<Self, DescriptorError> {
        const LENIENT: GeneralPurpose = GeneralPurpose::new(
            &STANDARD,
            GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
        );
        let text: String = text.split_ascii_whitespace().collect();
        Self::decode(LENIENT.decode(text)?)
    }

    /// Returns an adapter's configuration message: `Params` of the last file that has one, as Mixer chooses it.
    pub fn params(&self) -> Result<MessageDescriptor, DescriptorError> {
        let params =
            self.files().filter_map(|file| file.messages().find(|message| message.name() == "Params"));
        params.last().ok_or(DescriptorError::NoParams)
    }

    pub(super) fn files(&self) -> impl Iterator<Item = FileDescriptor> {
        self.files.iter().filter_map(|file| self.pool.get_file_by_name(&file.name))
    }
}

/// Refuses names that protoc would refuse: prost-reflect 0.16.5 panics where it looks some of them up.
fn check_names(pool: &DescriptorPool, files: &[File]) -> Result<(), DescriptorError> {
    let packages = files.iter().filter_map(|file| file.package.as_deref()).filter(|name| !name.is_empty());
    let parts = packages.flat_map(|package| package.split('.')).map(str::to_owned);
    let messages = pool.all_messages().map(|message| message.name().to_owned());
    let enums = pool.all_enums().map(|r#enum| r#enum.name().to_owned());
    let services = pool.services().map(|service| service.name().to_owned());
    let mut names = parts.chain(messages).chain(enums).chain(services);
    names
        .find(|name| !is_identifier(name))
        .map_or(Ok(()), |name| Err(DescriptorError::InvalidIdentifier(name)))
}

fn is_identifier(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Encodes the direct and indirect imports of `files` that are not in `files`.
fn missing_imports(files: &[File]) -> Vec<Bytes> {
    let mut present: HashSet<String> = files.iter().map(|file| file.name.clone()).collect();
    let mut imports: Vec<String> = files.iter().flat_map(|file| file.dependency.clone()).collect();
    let mut missing = Vec::new();
    while let Some(import) = imports.pop() {
        if !present.insert(import.clone()) {
            continue;
        }
        match known_file(&import) {
            Some(file) => {
                imports.extend(file.dependencies().map(|import| import.name().to_owned()));
                missing.push(file.encode_to_vec().into());
            }
            None => missing.push(File { name: import, ..File::default() }.encode_to_vec().into()),
        }
    }
    missing
}
