//! Descriptions of adapters and of their templates.

use prometheus_client::metrics::counter::Counter;
use prost_reflect::MessageDescriptor;

use mixer_adapter_core::{
    adapter::{AdapterError, Declared},
    framework::{log_limit::LogLimit, status::limit_details, version::SemanticVersion},
    metrics::Metrics,
    template::{Template, Variety},
};

/// A description of an adapter.
#[derive(Debug)]
pub struct AdapterInfo {
    /// Its position among the adapters of the process.
    pub(crate) index: usize,
    /// `Adapter::NAME`.
    pub name: &'static str,
    /// `Adapter::DESCRIPTION`.
    pub description: &'static str,
    /// `Adapter::VERSION`, if it is a version.
    pub version: Option<SemanticVersion>,
    /// The configuration message, in which every scalar field has presence.
    pub config: MessageDescriptor,
    /// `Config::DESCRIPTOR`.
    pub config_descriptor: &'static [u8],
    /// `Config::COMMENTS`.
    pub config_comments: &'static str,
    /// `Adapter::EXAMPLE`.
    pub example: &'static str,
    /// `Adapter::ANSWERS_FROM_MEMORY`.
    pub answers_from_memory: bool,
    /// The templates it serves.
    pub templates: Vec<TemplateInfo>,
    /// The limits and defaults of its fields, as its settings declare them.
    pub settings: Vec<Declared>,
    pub(crate) metrics: Metrics,
    pub(crate) panics: Counter,
    pub(crate) panic_log: LogLimit,
}

impl AdapterInfo {
    /// Returns whether it serves a template.
    pub fn serves(&self, template: &str) -> bool {
        self.templates.iter().any(|served| served.name == template)
    }

    /// Returns how often its handlers panicked.
    pub fn panics(&self) -> u64 {
        self.panics.get()
    }

    /// Counts the details of an error that are not sent.
    pub(crate) fn count_omitted_details(&self, error: &AdapterError) {
        let omitted = limit_details(&mut error.details().to_vec());
        if omitted > 0 {
            self.metrics.events("details_omitted").add(omitted);
        }
    }

    /// Returns the names of its templates, for messages.
    pub(crate) fn template_names(&self) -> String {
        quoted_list(self.templates.iter().map(|template| template.name))
    }
}

/// A description of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TemplateInfo {
    /// [`Template::NAME`].
    pub name: &'static str,
    /// [`Template::VARIETY`].
    pub variety: Variety,
    /// [`Template::PACKAGE`].
    pub package: &'static str,
    /// [`Template::METHOD`].
    pub method: &'static str,
    /// [`Template::DESCRIPTOR`].
    pub descriptor: &'static [u8],
    /// [`Template::COMMENTS`].
    pub comments: &'static str,
}

impl TemplateInfo {
    pub(super) fn of<T: Template>() -> Self {
        Self {
            name: T::NAME,
            variety: T::VARIETY,
            package: T::PACKAGE,
            method: T::METHOD,
            descriptor: T::DESCRIPTOR,
            comments: T::COMMENTS,
        }
    }
}

/// Maximum length of a list of names in a message, in bytes: a status is sent in a header.
const MAX_LIST: usize = 1 << 10;

/// Formats names for a message: `` `a`, `b` ``, or `none`. The names beyond 1 KiB are counted: `` `a`, `b` and 7 more ``.
pub fn quoted_list(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let (mut list, mut omitted) = (String::new(), 0_usize);
    for name in names {
        let name = name.as_ref();
        let separator = if list.is_empty() { "" } else { ", " };
        if list.len() + name.len() <= MAX_LIST {
            list.push_str(&format!("{separator}`{name}`"))
        } else {
            omitted += 1
        }
    }
    match (list.is_empty(), omitted) {
        (true, 0) => "none".to_owned(),
        (true, long) => format!("{long} with long names"),
        (false, 0) => list,
        (false, omitted) => format!("{list} and {omitted} more"),
    }
}
