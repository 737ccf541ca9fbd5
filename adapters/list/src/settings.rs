//! The configuration with the defaults of the original (docs/behaviour/adapters.md#listchecker).

use std::time::Duration;

use http::Uri;
use mixer_adapter_core::{
    adapter::{Access, ConfigErrors},
    prost_types,
};

use super::{
    Params, addresses,
    entries::EntryType,
    error::{ListError, UrlError},
    go_syntax,
    pattern_set::CountedPatterns,
};

/// The maximum of all durations, which keeps times from overflowing.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A validated configuration.
#[derive(Debug)]
pub(super) struct ListSettings {
    pub(super) provider: Option<Provider>,
    pub(super) entry_type: EntryType,
    pub(super) overrides: Vec<String>,
    pub(super) caching_interval: Duration,
    pub(super) caching_use_count: u32,
}

/// The source of a remote list.
#[derive(Clone, Debug)]
pub(super) struct Provider {
    pub(super) url: Uri,
    pub(super) refresh_interval: Duration,
    pub(super) ttl: Duration,
}

impl ListSettings {
    /// Validates a configuration whose provider must be a host that `access` allows.
    pub(super) fn read_within(params: &Params, access: &Access) -> Result<Self, ConfigErrors> {
        let settings = Self::read(params)?;
        if let Some(provider) = &settings.provider {
            access.host("provider_url", provider.url.host().unwrap_or_default())?;
        }
        Ok(settings)
    }

    /// Validates a configuration and reports all faults.
    pub(super) fn read(params: &Params) -> Result<Self, ConfigErrors> {
        let mut errors = ConfigErrors::default();
        let refresh_interval = duration(&mut errors, "refresh_interval", params.refresh_interval, 60);
        let ttl = duration(&mut errors, "ttl", params.ttl, 300);
        let caching_interval = duration(&mut errors, "caching_interval", params.caching_interval, 300);
        let provider = match params.provider_url.as_str() {
            "" => None,
            url => provider(&mut errors, url, refresh_interval, ttl),
        };
        let caching_use_count =
            u32::try_from(params.caching_use_count.unwrap_or(10_000)).unwrap_or_else(|_| {
                errors.push("caching_use_count", "must not be negative");
                0
            });
        let entry_type = EntryType::try_from(params.entry_type).unwrap_or_else(|_| {
            errors.push("entry_type", format!("{} is not an entry type", params.entry_type));
            EntryType::Strings
        });
        let mut counted = CountedPatterns::default();
        for (index, entry) in params.overrides.iter().enumerate() {
            match check_entry(entry_type, entry, &mut counted) {
                Ok(()) => {}
                Err(error) if error.is_limit() => {
                    errors.push("overrides", error.to_string());
                    break;
                }
                Err(error) => errors.push(format!("overrides[{index}]"), error.to_string()),
            }
        }
        errors.into_result()?;
        Ok(Self {
            provider,
            entry_type,
            overrides: params.overrides.clone(),
            caching_interval: caching_interval.unwrap_or_default(),
            caching_use_count,
        })
    }
}

/// Validates the provider. Returns `None` if it has faults.
fn provider(
    errors: &mut ConfigErrors,
    url: &str,
    refresh_interval: Option<Duration>,
    ttl: Option<Duration>,
) -> Option<Provider> {
    if refresh_interval.is_some_and(|interval| interval < Duration::from_secs(1)) {
        errors.push("refresh_interval", "must be at least 1s");
    }
    if ttl.zip(refresh_interval).is_some_and(|(ttl, interval)| ttl < interval) {
        errors.push("ttl", "must not be shorter than refresh_interval");
    }
    match provider_url(url) {
        Ok(url) => Some(Provider { url, refresh_interval: refresh_interval?, ttl: ttl? }),
        Err(error) => {
            errors.push("provider_url", error.to_string());
            None
        }
    }
}

fn provider_url(url: &str) -> Result<Uri, UrlError> {
    let uri: Uri = url.parse()?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") if cfg!(feature = "https") => {}
        Some("https") => return Err(UrlError::HttpsDisabled),
        _ => return Err(UrlError::Scheme),
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(UrlError::UserInfo);
    }
    Ok(uri)
}

fn check_entry(entry_type: EntryType, entry: &str, counted: &mut CountedPatterns) -> Result<(), ListError> {
    match entry_type {
        EntryType::Strings | EntryType::CaseInsensitiveStrings => Ok(()),
        EntryType::IpAddresses => addresses::network(entry).map(drop),
        EntryType::Regex if entry.is_empty() => Err(ListError::EmptyPattern),
        EntryType::Regex => match counted.add(entry)? {
            Some(_) => Ok(()),
            None => Ok(go_syntax::translate(entry).map(drop)?),
        },
    }
}

/// Returns a duration or its default; `None` if it has a fault.
fn duration(
    errors: &mut ConfigErrors,
    field: &str,
    value: Option<prost_types::Duration>,
    default_seconds: u64,
) -> Option<Duration> {
    let Some(value) = value else { return Some(Duration::from_secs(default_seconds)) };
    match Duration::try_from(value) {
        Ok(duration) if duration <= LONGEST => return Some(duration),
        Ok(_) => errors.push(field, "must not be longer than 100 years"),
        Err(_) => errors.push(field, "must not be negative"),
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn seconds(seconds: i64) -> Option<prost_types::Duration> {
        Some(prost_types::Duration { seconds, nanos: 0 })
    }

    fn fetched(url: &str, refresh: Option<i64>, ttl: Option<i64>) -> Params {
        Params {
            provider_url: url.to_owned(),
            refresh_interval: refresh.and_then(seconds),
            ttl: ttl.and_then(seconds),
            ..Params::default()
        }
    }

    fn of(entry_type: EntryType, overrides: &[&str]) -> Params {
        Params {
            entry_type: entry_type.into(),
            overrides: overrides.iter().map(ToString::to_string).collect(),
            ..Params::default()
        }
    }

    // The 13 cases of TestValidateConfig and those of TestBadRegexOverride, then ours.
    #[test]
    fn faults_are_refused_by_the_name_of_the_field() {
        let https = if cfg!(feature = "https") { "" } else { "provider_url" };
        let cases = [
            (fetched("Foo", Some(1), Some(2)), "provider_url"),
            (fetched(":", Some(1), Some(2)), "provider_url"),
            (fetched("http:", Some(1), Some(2)), "provider_url"),
            (fetched("http://", Some(1), Some(2)), "provider_url"),
            (fetched("http:///FOO", Some(1), Some(2)), "provider_url"),
            (fetched("http://foo.com", Some(0), Some(2)), "refresh_interval"),
            (fetched("http://foo.com", Some(-1), Some(2)), "refresh_interval"),
            (fetched("http://foo.com", Some(1), Some(0)), "ttl"),
            (Params { caching_interval: seconds(-1), ..Params::default() }, "caching_interval"),
            (Params { caching_use_count: Some(-1), ..Params::default() }, "caching_use_count"),
            (of(EntryType::IpAddresses, &["XYZ"]), "overrides[0]"),
            (of(EntryType::IpAddresses, &["1.2.3.4"]), ""),
            (of(EntryType::Regex, &["(["]), "overrides[0]"),
            (of(EntryType::Regex, &["a", "("]), "overrides[1]"),
            (of(EntryType::Regex, &[""]), "overrides[0]"),
            (fetched("http://foo.com", None, None), ""),
            (fetched("https://foo.com/list?a=b", Some(1), Some(1)), https),
            (fetched("ftp://foo.com", None, None), "provider_url"),
            (fetched("http://user:secret@foo.com", None, None), "provider_url"),
            (fetched("http://foo.com", Some(600), None), "ttl"),
            (fetched("http://foo.com", Some(1), Some(i64::MAX)), "ttl"),
            (Params { entry_type: 4, ..Params::default() }, "entry_type"),
        ];
        for (params, field) in cases {
            let fields = match ListSettings::read(&params) {
                Ok(_) => String::new(),
                Err(errors) => {
                    assert!(!errors.to_string().contains("secret"), "{errors}");
                    errors.into_violations().into_iter().map(|violation| violation.field).collect()
                }
            };
            assert_eq!(fields, field, "{params:?}");
        }
    }

    #[test]
    fn absent_fields_take_the_defaults_and_zero_is_preserved() {
        let settings = ListSettings::read(&Params::default()).unwrap();
        assert!(settings.provider.is_none());
        assert_eq!(settings.entry_type, EntryType::Strings);
        assert_eq!(settings.caching_interval, Duration::from_secs(300));
        assert_eq!(settings.caching_use_count, 10_000);
        let provider = ListSettings::read(&fetched("http://foo.com", None, None)).unwrap().provider.unwrap();
        assert_eq!(provider.refresh_interval, Duration::from_secs(60));
        assert_eq!(provider.ttl, Duration::from_secs(300));
        let zero = Params { caching_interval: seconds(0), caching_use_count: Some(0), ..Params::default() };
        let settings = ListSettings::read(&zero).unwrap();
        assert_eq!((settings.caching_interval, settings.caching_use_count), (Duration::ZERO, 0));
    }
}
