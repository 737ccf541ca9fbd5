use std::fmt;

/// An adapter's configuration: the message `Params` of its config.proto. Implemented by what
/// `mixer_adapter_build::adapter` generates.
pub trait Config: prost::Message + Default + Clone + Send + Sync + 'static {
    /// The full name of the message, `adapter.list.config.Params`: unique in a server, since Mixer's requests name the
    /// adapter in no other way.
    const NAME: &'static str;
    /// An encoded `FileDescriptorSet` with all imports: what goes into the adapter resource of a real Mixer.
    const DESCRIPTOR: &'static [u8];
}

/// One fault of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The path of the field, `overrides[2].max_amount`.
    pub field: String,
    /// What is wrong with it and what it should be.
    pub reason: String,
}

/// All faults of a configuration that were found.
///
/// ```
/// use mixer_adapter_core::adapter::ConfigErrors;
/// let mut errors = ConfigErrors::default();
/// errors.refuse("ttl", "must not be shorter than refresh_interval");
/// assert_eq!(errors.into_result().unwrap_err().to_string(), "ttl: must not be shorter than refresh_interval");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigErrors {
    violations: Vec<Violation>,
}

impl ConfigErrors {
    /// The one fault of a configuration.
    pub fn one(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { violations: vec![Violation { field: field.into(), reason: reason.into() }] }
    }

    /// Adds a fault: the path of the field, and what is wrong with it.
    pub fn refuse(&mut self, field: impl Into<String>, reason: impl Into<String>) {
        self.violations.push(Violation { field: field.into(), reason: reason.into() });
    }

    /// `Ok` if no fault was found.
    pub fn into_result(self) -> Result<(), Self> {
        if self.violations.is_empty() { Ok(()) } else { Err(self) }
    }

    /// The faults, in the order in which they were found.
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
