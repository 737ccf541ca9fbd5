//! Limits on single calls of the Mixer API.

use mixer_adapter_core::framework::settings;
use mixer_adapter_host::handler::Caller;
use mixer_adapter_net::grpc::CallMemory;

settings! {
    /// Limits on a single call. Beyond them it is RESOURCE_EXHAUSTED.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[non_exhaustive]
    pub struct RequestLimits {
        /// Maximum number of requests in a report.
        requests_per_report: usize = 10_000,
        /// Maximum number of attributes of one request.
        attributes_per_request: usize = 10_000,
        /// Maximum number of words in the dictionaries of a call.
        words: usize = 500_000,
        /// Maximum number of quotas in a check.
        quotas_per_check: usize = 100,
        /// Maximum number of instances in a call of a template, or built for a call of the Mixer API.
        instances: usize = 50_000,
        /// Maximum size in bytes of the decompressed attributes of a call, and of the instances built from them.
        expanded_size: usize = 32 << 20,
    }
}

/// A limit of [`RequestLimits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestLimit {
    /// Requests of a report.
    Requests,
    /// Attributes of a request.
    Attributes,
    /// Words in the dictionaries of a call.
    Words,
    /// Quotas of a check.
    Quotas,
    /// Instances in a call.
    Instances,
    /// Bytes of decompressed attributes, or of instances.
    Size,
    /// The memory of the server for all calls.
    Memory,
}

impl RequestLimit {
    /// The names of the limits by discriminant.
    pub const NAMES: [&str; 7] = ["requests", "attributes", "words", "quotas", "instances", "size", "memory"];

    /// Returns an error if `count` exceeds `max`, the value of this limit.
    ///
    /// # Errors
    /// The limit is exceeded.
    pub fn check(self, count: usize, max: usize) -> Result<(), LimitError> {
        if count > max { Err(LimitError { limit: self, max }) } else { Ok(()) }
    }

    /// The object that is limited, its unit, and the name of the limit.
    fn describe(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Requests => ("the report", "requests", "max-requests-per-report"),
            Self::Attributes => ("a request", "attributes", "max-attributes-per-request"),
            Self::Words => ("the call", "dictionary words", "max-words"),
            Self::Quotas => ("the check", "quotas", "max-quotas-per-check"),
            Self::Instances => ("the call", "instances", "max-instances"),
            Self::Size => ("the call", "bytes of attributes or instances", "max-expanded-size"),
            Self::Memory => {
                ("the call", "bytes of attributes and instances, for which no memory is left", "memory-limit")
            }
        }
    }
}

/// A call that exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} has more than {max} {} ({})", .limit.describe().0, .limit.describe().1, .limit.describe().2)]
#[non_exhaustive]
pub struct LimitError {
    /// The limit.
    pub limit: RequestLimit,
    /// Its value.
    pub max: usize,
}

/// The work of one call, counted against its limits.
///
/// Values of attributes count each time they are used: a report can refer to one word in every request, and a delta
/// inherits all attributes of the request before it.
///
/// The memory of all instances, and of the attributes of one request at a time, is charged to the server's before they are built,
/// until the call ends.
#[derive(Clone, Debug)]
pub struct Budget {
    max_instances: usize,
    max_size: usize,
    instances: usize,
    instance_bytes: usize,
    attribute_bytes: usize,
    /// The attributes of previous requests.
    former_attribute_bytes: usize,
    memory: Option<CallMemory>,
    /// The memory taken, in bytes.
    taken: usize,
}

/// The least memory that is taken at a time.
const MEMORY_STEP: usize = 1024;

impl Budget {
    /// Creates the budget of one call.
    pub fn new(limits: &RequestLimits, caller: &Caller) -> Self {
        Self { memory: caller.memory.clone(), ..Self::without_memory(limits) }
    }

    fn without_memory(limits: &RequestLimits) -> Self {
        let RequestLimits { instances: max_instances, expanded_size: max_size, .. } = *limits;
        Self {
            max_instances,
            max_size,
            instances: 0,
            instance_bytes: 0,
            attribute_bytes: 0,
            former_attribute_bytes: 0,
            memory: None,
            taken: 0,
        }
    }

    /// Begins another request of the call, after the attributes of the previous one were dropped.
    pub(crate) fn next_request(mut self) -> Self {
        self.former_attribute_bytes = self.attribute_bytes;
        self
    }

    /// Takes memory for the counted data.
    fn take_memory(&mut self) -> Result<(), LimitError> {
        let used = (self.attribute_bytes - self.former_attribute_bytes).saturating_add(self.instance_bytes);
        if used <= self.taken {
            return Ok(());
        }
        let Some(memory) = &self.memory else { return Ok(()) };
        let step = (used - self.taken).max(MEMORY_STEP);
        if !memory.take(step) {
            return Err(LimitError { limit: RequestLimit::Memory, max: self.taken });
        }
        self.taken += step;
        Ok(())
    }

    /// Counts bytes of decompressed attributes.
    ///
    /// # Errors
    /// They exceed the limit.
    pub fn add_attributes(&mut self, bytes: usize) -> Result<(), LimitError> {
        self.attribute_bytes = self.attribute_bytes.saturating_add(bytes);
        RequestLimit::Size.check(self.attribute_bytes, self.max_size)?;
        self.take_memory()
    }

    /// Counts an instance.
    pub(crate) fn add_instance(&mut self, bytes: usize) -> Result<(), LimitError> {
        self.instances += 1;
        self.instance_bytes = self.instance_bytes.saturating_add(bytes);
        RequestLimit::Instances.check(self.instances, self.max_instances)?;
        RequestLimit::Size.check(self.instance_bytes, self.max_size)?;
        self.take_memory()
    }

    /// The bytes of attributes so far.
    pub fn attribute_bytes(&self) -> usize {
        self.attribute_bytes
    }

    /// The bytes of attributes and instances so far.
    pub fn bytes(&self) -> usize {
        self.attribute_bytes.saturating_add(self.instance_bytes)
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::without_memory(&RequestLimits::default())
    }
}
