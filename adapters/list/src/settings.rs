//! The configuration, with its defaults, which are the original's (docs/behaviour/adapters.md#listchecker).

use std::time::Duration;

use http::Uri;
use mixer_adapter_core::{adapter::ConfigErrors, prost_types};

use super::{Params, addresses, entries::Kind, patterns};

/// No duration may be longer: what is meant to be endless is not meant to overflow a clock.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A configuration found good.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) provider: Option<Provider>,
    pub(super) kind: Kind,
    pub(super) overrides: Vec<String>,
    pub(super) caching_interval: Duration,
    pub(super) caching_use_count: u32,
}

/// Where the list comes from.
#[derive(Clone, Debug)]
pub(super) struct Provider {
    pub(super) url: Uri,
    pub(super) refresh_interval: Duration,
    pub(super) ttl: Duration,
}

impl Settings {
    /// Reads a configuration; the error names every field that is wrong.
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
        let kind = Kind::try_from(params.entry_type).unwrap_or_else(|_| {
            errors.push("entry_type", format!("there is no entry type {}", params.entry_type));
            Kind::Strings
        });
        for (index, entry) in params.overrides.iter().enumerate() {
            if let Err(reason) = check_entry(kind, entry) {
                errors.push(format!("overrides[{index}]"), reason);
            }
        }
        errors.into_result()?;
        Ok(Self {
            provider,
            kind,
            overrides: params.overrides.clone(),
            caching_interval: caching_interval.unwrap_or_default(),
            caching_use_count,
        })
    }
}

/// The provider, if nothing about it was refused.
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
        Err(reason) => {
            errors.push("provider_url", reason);
            None
        }
    }
}

fn provider_url(url: &str) -> Result<Uri, String> {
    let uri: Uri = url.parse().map_err(|error| format!("is no URL: {error}"))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") if cfg!(feature = "https") => {}
        Some("https") => return Err("this program was built without the feature `https`".to_owned()),
        _ => return Err("must begin with http:// or https://".to_owned()),
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("must not hold a user name or a password".to_owned());
    }
    Ok(uri)
}

fn check_entry(kind: Kind, entry: &str) -> Result<(), String> {
    match kind {
        Kind::Strings | Kind::CaseInsensitiveStrings => Ok(()),
        Kind::IpAddresses => addresses::network(entry).map(drop),
        Kind::Regex if entry.is_empty() => {
            Err("is empty and would match every value; write .* if that is meant".to_owned())
        }
        Kind::Regex => patterns::translate(entry).map(drop),
    }
}

/// A duration, or its default; nothing if it was refused.
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

    fn of(kind: Kind, overrides: &[&str]) -> Params {
        Params {
            entry_type: kind.into(),
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
            (of(Kind::IpAddresses, &["XYZ"]), "overrides[0]"),
            (of(Kind::IpAddresses, &["1.2.3.4"]), ""),
            (of(Kind::Regex, &["(["]), "overrides[0]"),
            (of(Kind::Regex, &["a", "("]), "overrides[1]"),
            (of(Kind::Regex, &[""]), "overrides[0]"),
            (fetched("http://foo.com", None, None), ""),
            (fetched("https://foo.com/list?a=b", Some(1), Some(1)), https),
            (fetched("ftp://foo.com", None, None), "provider_url"),
            (fetched("http://user:secret@foo.com", None, None), "provider_url"),
            (fetched("http://foo.com", Some(600), None), "ttl"),
            (fetched("http://foo.com", Some(1), Some(i64::MAX)), "ttl"),
            (Params { entry_type: 4, ..Params::default() }, "entry_type"),
        ];
        for (params, field) in cases {
            let fields = match Settings::read(&params) {
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
    fn absent_fields_take_the_defaults_and_zero_is_kept() {
        let settings = Settings::read(&Params::default()).unwrap();
        assert!(settings.provider.is_none());
        assert_eq!(settings.kind, Kind::Strings);
        assert_eq!(settings.caching_interval, Duration::from_secs(300));
        assert_eq!(settings.caching_use_count, 10_000);
        let provider = Settings::read(&fetched("http://foo.com", None, None)).unwrap().provider.unwrap();
        assert_eq!(provider.refresh_interval, Duration::from_secs(60));
        assert_eq!(provider.ttl, Duration::from_secs(300));
        let zero = Params { caching_interval: seconds(0), caching_use_count: Some(0), ..Params::default() };
        let settings = Settings::read(&zero).unwrap();
        assert_eq!((settings.caching_interval, settings.caching_use_count), (Duration::ZERO, 0));
    }
}
