use std::fmt;

/// An adapter's configuration: the message `Params` of its config.proto.
///
/// `mixer_adapter_build::adapter` generates the implementation; no other code should implement this trait.
pub trait Config: prost::Message + Default + Clone + Send + Sync + 'static {
    /// The full name of the message, `adapter.list.config.Params`. Unique in a server, because requests from Mixer
    /// identify the adapter by this name only.
    const NAME: &'static str;
    /// An encoded `FileDescriptorSet` with all imports, as in the adapter resource of a real Mixer.
    const DESCRIPTOR: &'static [u8];
    /// The comments of its messages, fields, enums and their values, one on each line after the full name and a tab. The full name of a
    /// value begins with its enum's.
    const COMMENTS: &'static str = "";
    /// Implemented by generated code.
    #[doc(hidden)]
    const GENERATED: ();
}

/// One fault of a configuration, or a probable mistake in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// The path of the field, `overrides[2].max_amount`.
    pub field: String,
    /// The fault and the expected value, `must not be negative`.
    pub reason: String,
}

impl Violation {
    /// Creates a fault: the path of the field and the reason.
    pub fn new(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { field: field.into(), reason: reason.into() }
    }
}

/// The faults of a configuration.
///
/// ```
/// use mixer_adapter_core::adapter::ConfigErrors;
/// let mut errors = ConfigErrors::default();
/// errors.push("ttl", "must not be shorter than refresh_interval");
/// assert_eq!(errors.into_result().unwrap_err().to_string(), "ttl: must not be shorter than refresh_interval");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigErrors {
    violations: Vec<Violation>,
}

impl ConfigErrors {
    /// Creates the error of a configuration with one fault: the path of the field and the reason.
    pub fn single(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { violations: vec![Violation::new(field, reason)] }
    }

    /// Adds a fault: the path of the field and the reason.
    pub fn push(&mut self, field: impl Into<String>, reason: impl Into<String>) {
        self.violations.push(Violation::new(field, reason));
    }

    /// Adds the faults of another error.
    pub fn extend(&mut self, other: Self) {
        self.violations.extend(other.violations);
    }

    /// Returns `Ok` if there are no faults.
    ///
    /// # Errors
    /// Returns itself if there is a fault.
    pub fn into_result(self) -> Result<(), Self> {
        if self.violations.is_empty() { Ok(()) } else { Err(self) }
    }

    /// Returns the reasons without the fields.
    pub(super) fn reasons(&self) -> String {
        let reasons: Vec<&str> = self.violations.iter().map(|violation| violation.reason.as_str()).collect();
        reasons.join("; ")
    }

    /// Returns the faults in the order in which they were added.
    pub fn into_violations(self) -> Vec<Violation> {
        self.violations
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Violation { field, reason }) in self.violations.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{field}: {reason}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
