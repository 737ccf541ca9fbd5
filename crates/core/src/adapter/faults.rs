use std::{
    collections::HashSet, convert::Infallible, fmt::Display, hash::Hash, ops::RangeInclusive, path::Path,
    time::Duration,
};

use http::{Uri, uri::Scheme};

use super::{Access, ConfigErrors, FileLocation, InferredTypes, Violation};
use crate::{framework::is_this_machine, value::format_duration};

/// The longest duration of a setting: 100 years, which keeps times from overflowing.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Collects the faults of a configuration while [`Settings::parse`](super::Settings::parse) reads it, and its probable mistakes.
///
/// A setting is read in one expression, which names the field, its limits and its default:
///
/// ```
/// # use std::time::Duration;
/// # use mixer_adapter_core::{adapter::{Access, Faults, InferredTypes}, prost_types};
/// # let (types, access) = (InferredTypes::default(), Access::unrestricted());
/// # let mut faults = Faults::new(&types, &access);
/// # let params = (Some(prost_types::Duration { seconds: 7200, nanos: 0 }), 0, "");
/// let timeout = faults.duration("timeout", params.0).range(Duration::ZERO..=Duration::from_secs(3600));
/// let timeout = timeout.or(Duration::from_secs(5));
/// let attempts = faults.number("attempts", params.1).range(1..=10).required();
/// let name = faults.text("name", params.2).length(1..=63).required();
/// assert_eq!(
///     faults.into_errors().to_string(),
///     "timeout: must be from 0s to 1h0m0s; attempts: must be from 1 to 10; name: must be given"
/// );
/// ```
#[derive(Debug)]
pub struct Faults<'a> {
    errors: ConfigErrors,
    warnings: Vec<Violation>,
    declared: Vec<Declared>,
    types: &'a InferredTypes,
    access: &'a Access,
}

/// The limits and the default of a field, as [`Settings::parse`](super::Settings::parse) declares them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Declared {
    /// The path of the field.
    pub field: String,
    /// Its limits, `must be from 1s to 1h0m0s`; empty if it has none.
    pub limits: String,
    /// The default, `30s`; `None` if it has none.
    pub default: Option<String>,
    /// Whether the field must be given.
    pub is_required: bool,
}

/// A duration that no setting can have.
#[derive(Debug, thiserror::Error)]
enum DurationError {
    #[error("must not be longer than 100 years")]
    TooLong,
    #[error("must not be negative")]
    Negative,
}

/// A URL that cannot be requested.
#[derive(Debug, thiserror::Error)]
enum UrlError {
    #[error("{0:?} is not a URL; write it like \"https://host/path\"")]
    Invalid(String),
    #[error("must not have a user name or a password; a header can send them")]
    UserInfo,
    #[error("{}", .0.reasons())]
    Host(ConfigErrors),
}

/// A setting that is read: `None` if it is absent or has a fault.
#[derive(Debug)]
#[must_use = "a setting ends with `or`, `optional` or `required`"]
pub struct Setting<'s, 'a, T> {
    faults: &'s mut Faults<'a>,
    declared: Declared,
    value: Option<T>,
    is_faulty: bool,
}

impl<'a> Faults<'a> {
    /// Begins without faults.
    pub fn new(types: &'a InferredTypes, access: &'a Access) -> Self {
        let (errors, warnings, declared) = (ConfigErrors::default(), Vec::new(), Vec::new());
        Self { errors, warnings, declared, types, access }
    }

    /// Returns the types of the session's instances; empty when a call carries its own configuration, and before a handler is opened,
    /// which sessions with other types may share.
    pub fn types(&self) -> &'a InferredTypes {
        self.types
    }

    /// Returns the files and hosts that the configuration may reach.
    pub fn access(&self) -> &'a Access {
        self.access
    }

    /// Adds a fault: the path of the field and the reason.
    pub fn push(&mut self, field: impl Into<String>, reason: impl Into<String>) {
        self.errors.push(field, reason);
    }

    /// Adds a probable mistake, such as an entry that no value equals. The server logs it, and `validate` prints it as a warning.
    pub fn warn(&mut self, field: impl Into<String>, reason: impl Into<String>) {
        self.warnings.push(Violation::new(field, reason));
    }

    /// Adds the error of a field that is parsed by something else.
    pub fn check<T, E: Display>(&mut self, field: impl Into<String>, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.push(field, error.to_string())).ok()
    }

    /// Adds the faults of a part.
    pub fn part<T>(&mut self, part: Result<T, ConfigErrors>) -> Option<T> {
        part.map_err(|errors| self.errors.extend(errors)).ok()
    }

    /// Checks that the configuration may open a file, and returns its location.
    pub fn file(&mut self, field: &str, path: impl AsRef<Path>) -> Option<FileLocation> {
        let location = self.access.file(field, path.as_ref());
        self.part(location)
    }

    /// Checks that the configuration may read the file of a secret that is sent to a URL: over TLS, or to this machine. An empty
    /// path is valid.
    pub fn secret_file(&mut self, field: &str, path: &str, url: &Uri) {
        if path.is_empty() {
            return;
        }
        self.file(field, path);
        if url.scheme() != Some(&Scheme::HTTPS) && !is_this_machine(url.host().unwrap_or_default()) {
            self.push(field, format!("would be sent to {url} in the clear; use https"));
        }
    }

    /// Checks that the configuration may read a file of CA certificates for a URL, and that the URL is https. An empty path is valid.
    pub fn ca_file(&mut self, field: &str, path: &str, url: &Uri) {
        if path.is_empty() {
            return;
        }
        self.file(field, path);
        if url.scheme() != Some(&Scheme::HTTPS) {
            self.push(field, "is for TLS; write https:// in url");
        }
    }

    /// Checks that the configuration may connect to a host.
    pub fn host(&mut self, field: &str, host: &str) {
        let allowed = self.access.host(field, host);
        self.part(allowed);
    }

    /// Reads a duration, which is not negative and at most 100 years.
    pub fn duration(
        &mut self,
        field: impl Into<String>,
        given: Option<prost_types::Duration>,
    ) -> Setting<'_, 'a, Duration> {
        let value = given.map(|given| match Duration::try_from(given) {
            Ok(duration) if duration <= LONGEST => Ok(duration),
            Ok(_) => Err(DurationError::TooLong),
            Err(_) => Err(DurationError::Negative),
        });
        self.setting(field.into(), value)
    }

    /// Reads a number: of an `optional` field, or 0 for absent.
    pub fn number<N>(&mut self, field: impl Into<String>, given: impl Into<Option<N>>) -> Setting<'_, 'a, N> {
        self.setting(field.into(), given.into().map(Ok::<_, Infallible>))
    }

    /// Reads a text; an empty one is absent.
    pub fn text(&mut self, field: impl Into<String>, given: impl Into<String>) -> Setting<'_, 'a, String> {
        let given = given.into();
        self.setting(field.into(), (!given.is_empty()).then_some(Ok::<_, Infallible>(given)))
    }

    /// Reads an `http://` or `https://` URL of a host that the configuration may connect to; an empty text is absent.
    pub fn url(&mut self, field: impl Into<String>, given: &str) -> Setting<'_, 'a, Uri> {
        let field = field.into();
        let url = (!given.is_empty()).then(|| self.parse_url(given));
        self.setting(field, url)
    }

    fn parse_url(&self, given: &str) -> Result<Uri, UrlError> {
        let url: Option<Uri> = given.parse().ok();
        let url = url.filter(|url| matches!(url.scheme_str(), Some("http" | "https")));
        // Without the text, which may have a password.
        let invalid =
            || if given.contains('@') { UrlError::UserInfo } else { UrlError::Invalid(given.to_owned()) };
        let url = url.ok_or_else(invalid)?;
        if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(UrlError::UserInfo);
        }
        self.access.host("", url.host().unwrap_or_default()).map_err(UrlError::Host)?;
        Ok(url)
    }

    /// Checks that the keys of a repeated field are different: `quotas[2].name`.
    pub fn unique<K: Eq + Hash + Display>(
        &mut self,
        list: &str,
        field: &str,
        keys: impl IntoIterator<Item = K>,
    ) {
        let mut seen = HashSet::new();
        for (index, key) in keys.into_iter().enumerate() {
            if seen.contains(&key) {
                self.push(
                    format!("{list}[{index}].{field}"),
                    format!("there is an entry for `{key}` already"),
                );
            }
            seen.insert(key);
        }
    }

    /// Reads a field whose value is valid, has a fault, or is absent.
    pub fn setting<T, E: Display>(
        &mut self,
        field: String,
        given: Option<Result<T, E>>,
    ) -> Setting<'_, 'a, T> {
        let declared = Declared { field, limits: String::new(), default: None, is_required: false };
        let mut setting = Setting { faults: self, declared, value: None, is_faulty: false };
        match given {
            Some(Ok(value)) => setting.value = Some(value),
            Some(Err(error)) => setting.fail(error.to_string()),
            None => {}
        }
        setting
    }

    /// Returns the probable mistakes.
    #[doc(hidden)]
    pub fn into_warnings(self) -> Vec<Violation> {
        self.warnings
    }

    /// Returns the fields that were read, with their limits and defaults.
    #[doc(hidden)]
    pub fn into_declared(self) -> Vec<Declared> {
        self.declared
    }

    /// Returns the faults.
    pub fn into_errors(self) -> ConfigErrors {
        self.errors
    }

    pub(super) fn take_errors(&mut self) -> ConfigErrors {
        std::mem::take(&mut self.errors)
    }
}

impl<T> Setting<'_, '_, T> {
    fn fail(&mut self, reason: String) {
        self.faults.push(self.declared.field.clone(), reason);
        (self.value, self.is_faulty) = (None, true);
    }

    /// Refuses a value for which `is_valid` is false: `must LIMITS`.
    pub fn must(mut self, limits: &str, is_valid: impl FnOnce(&T) -> bool) -> Self {
        if self.value.as_ref().is_some_and(|value| !is_valid(value)) {
            self.fail(format!("must {limits}"));
        }
        let and = if self.declared.limits.is_empty() { "must " } else { " and " };
        self.declared.limits.push_str(and);
        self.declared.limits.push_str(limits);
        self
    }

    /// Refuses a value that cannot be parsed further.
    pub fn parse<V, E: Display>(mut self, parse: impl FnOnce(T) -> Result<V, E>) -> Option<V> {
        let parsed = self.value.take().map(parse);
        let parsed = parsed.and_then(|parsed| parsed.map_err(|error| self.fail(error.to_string())).ok());
        self.faults.declared.push(self.declared);
        parsed
    }

    /// Sets the value of an absent field.
    pub fn default(mut self, default: T) -> Self
    where
        T: Shown,
    {
        self.declared.default = Some(default.shown());
        if !self.is_faulty {
            self.value.get_or_insert(default);
        }
        self
    }

    /// Returns the value; the default if the field is absent or has a fault.
    pub fn or(mut self, default: T) -> T
    where
        T: Shown,
    {
        self.declared.default = Some(default.shown());
        self.optional().unwrap_or(default)
    }

    /// Returns the value if the field has one.
    pub fn optional(self) -> Option<T> {
        self.faults.declared.push(self.declared);
        self.value
    }

    /// Returns the value, which must be given. `None` if there is a fault.
    pub fn required(mut self) -> Option<T> {
        if self.value.is_none() && !self.is_faulty {
            self.fail("must be given".to_owned());
        }
        self.declared.is_required = true;
        self.optional()
    }
}

impl<T: PartialOrd + Shown> Setting<'_, '_, T> {
    /// Refuses a value out of a range.
    pub fn range(self, range: RangeInclusive<T>) -> Self {
        let limits = format!("be from {} to {}", range.start().shown(), range.end().shown());
        self.must(&limits, |value| range.contains(value))
    }

    /// Refuses a value below a minimum.
    pub fn at_least(self, minimum: T) -> Self {
        self.must(&format!("be at least {}", minimum.shown()), |value| *value >= minimum)
    }
}

impl Setting<'_, '_, String> {
    /// Refuses a text with fewer or more characters.
    pub fn length(self, characters: RangeInclusive<usize>) -> Self {
        let limits = format!("have {} to {} characters", characters.start(), characters.end());
        self.must(&limits, |text| characters.contains(&text.chars().count()))
    }
}

/// A value of a setting that errors and the reference show.
pub trait Shown {
    /// Formats the value as in a configuration.
    fn shown(&self) -> String;
}

impl Shown for Duration {
    fn shown(&self) -> String {
        format_duration(i128::try_from(self.as_nanos()).unwrap_or(i128::MAX))
    }
}

impl Shown for String {
    fn shown(&self) -> String {
        format!("{self:?}")
    }
}

macro_rules! shown {
    ($($type:ty)*) => {
        $(impl Shown for $type {
            fn shown(&self) -> String {
                self.to_string()
            }
        })*
    };
}

shown!(i32 i64 u32 u64 usize f32 f64 bool Uri);

impl Declared {
    /// Returns the limits as a sentence for the description of the field: `Required; must be from 1 to 10.`
    #[doc(hidden)]
    pub fn sentence(&self) -> Option<String> {
        let required = if self.is_required { "required" } else { "" };
        let parts = [required, self.limits.as_str()].into_iter().filter(|part| !part.is_empty());
        let text = parts.collect::<Vec<_>>().join("; ");
        let first = text.chars().next()?;
        Some(format!("{}{}.", first.to_uppercase(), &text[first.len_utf8()..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_with_a_password_is_refused_without_it() {
        let (types, access) = (InferredTypes::default(), Access::unrestricted());
        let mut faults = Faults::new(&types, &access);
        for url in ["https://user:secret@host/", "ftp://user:secret@host/", "https://user:secret@host:port/"]
        {
            assert!(faults.url("url", url).required().is_none());
        }
        let text = faults.into_errors().to_string();
        assert_eq!(text.matches("must not have a user name or a password").count(), 3, "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}
