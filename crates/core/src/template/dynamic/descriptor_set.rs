use std::{collections::HashSet, sync::LazyLock};

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use prost::{Message, bytes::Bytes};
use prost_reflect::{DescriptorPool, FileDescriptor, MessageDescriptor};

/// What is wrong with a descriptor, so that a template or a configuration cannot be read by it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DescriptorError(pub(super) String);

/// A `FileDescriptorSet` as `template` and `adapter` resources hold one.
///
/// Files that it imports but leaves out are put in: Istio's and Google's from what is known here, any other as an empty
/// file. A real Mixer does not need them either (docs/behaviour/configuration.md#what-a-template-descriptor-needs).
#[derive(Clone, Debug)]
pub struct DescriptorSet {
    pub(super) pool: DescriptorPool,
    /// In the order of the set.
    pub(super) files: Vec<File>,
}

/// Of a `FileDescriptorProto`, what is looked at here. The options come as they are on the wire, since prost-types drops
/// extensions.
#[derive(Clone, PartialEq, Message)]
pub(super) struct File {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, repeated, tag = "3")]
    pub(super) dependency: Vec<String>,
    #[prost(message, optional, tag = "8")]
    pub(super) options: Option<FileOptions>,
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

impl DescriptorSet {
    /// Reads the bytes of a set.
    pub fn decode(set: impl Into<Bytes>) -> Result<Self, DescriptorError> {
        let unreadable = |error: &dyn std::fmt::Display| {
            DescriptorError(format!("this is no google.protobuf.FileDescriptorSet: {error}"))
        };
        let mut set = Set::decode(set.into()).map_err(|error| unreadable(&error))?;
        let files = set.file.iter().map(|file| File::decode(file.clone())).collect::<Result<Vec<_>, _>>();
        let files = files.map_err(|error| unreadable(&error))?;
        if files.is_empty() {
            return Err(unreadable(&"it has no file"));
        }
        set.file.extend(missing_imports(&files));
        let pool = DescriptorPool::decode(set.encode_to_vec().as_slice())
            .map_err(|error| DescriptorError(format!("the descriptors do not fit together: {error}")))?;
        Ok(Self { pool, files })
    }

    /// Reads a set in base64 as resources hold it: the standard alphabet, with or without padding and line breaks.
    pub fn from_base64(text: &str) -> Result<Self, DescriptorError> {
        const LENIENT: GeneralPurpose = GeneralPurpose::new(
            &STANDARD,
            GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
        );
        let text: String = text.split_ascii_whitespace().collect();
        let set =
            LENIENT.decode(text).map_err(|error| DescriptorError(format!("this is no base64: {error}")))?;
        Self::decode(set)
    }

    /// An adapter's configuration message: `Params` of the last file that has one, as Mixer chooses it.
    pub fn params(&self) -> Result<MessageDescriptor, DescriptorError> {
        let params =
            self.files().filter_map(|file| file.messages().find(|message| message.name() == "Params"));
        params.last().ok_or_else(|| {
            DescriptorError("no file has a message `Params`: this is no adapter's configuration".to_owned())
        })
    }

    pub(super) fn files(&self) -> impl Iterator<Item = FileDescriptor> {
        self.files.iter().filter_map(|file| self.pool.get_file_by_name(&file.name))
    }
}

/// The encoded files that these import, directly or not, and that are not among them.
fn missing_imports(files: &[File]) -> Vec<Bytes> {
    let mut present: HashSet<String> = files.iter().map(|file| file.name.clone()).collect();
    let mut imports: Vec<String> = files.iter().flat_map(|file| file.dependency.clone()).collect();
    let mut missing = Vec::new();
    while let Some(import) = imports.pop() {
        if !present.insert(import.clone()) {
            continue;
        }
        let known = KNOWN.as_ref().and_then(|known| known.get_file_by_name(&import));
        match known.or_else(|| DescriptorPool::global().get_file_by_name(&import)) {
            Some(file) => {
                imports.extend(file.dependencies().map(|import| import.name().to_owned()));
                missing.push(file.encode_to_vec().into());
            }
            None => missing.push(File { name: import, ..File::default() }.encode_to_vec().into()),
        }
    }
    missing
}
