//! The configuration with the defaults of the original (docs/behaviour/adapters.md#listchecker).

use std::time::Duration;

use http::Uri;
use mixer_adapter_core::adapter::{Faults, Settings};

use super::{
    Params, addresses,
    entries::EntryType,
    error::{ListError, UrlError},
    go_syntax,
    pattern_set::CountedPatterns,
    warnings,
};

/// A validated configuration.
#[derive(Debug)]
pub struct ListSettings {
    pub(super) provider: Option<Provider>,
    pub(super) entry_type: EntryType,
    pub(super) overrides: Vec<String>,
    pub(super) blacklist: bool,
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

impl Settings for ListSettings {
    type Params = Params;

    fn parse(params: Params, faults: &mut Faults<'_>) -> Option<Self> {
        warnings::add(&params, faults);
        let seconds = Duration::from_secs;
        let refresh =
            faults.duration("refresh_interval", params.refresh_interval).default(seconds(60)).optional();
        let ttl = faults.duration("ttl", params.ttl).default(seconds(300)).optional();
        let caching_interval = faults.duration("caching_interval", params.caching_interval).or(seconds(300));
        let provider = match params.provider_url.as_str() {
            "" => None,
            url => provider(faults, url, refresh, ttl),
        };
        let uses = faults.number("caching_use_count", params.caching_use_count).at_least(0).or(10_000);
        let entry_type = EntryType::try_from(params.entry_type)
            .map_err(|_| format!("{} is not an entry type", params.entry_type));
        let entry_type = faults.check("entry_type", entry_type).unwrap_or(EntryType::Strings);
        let mut counted = CountedPatterns::default();
        for (index, entry) in params.overrides.iter().enumerate() {
            match check_entry(entry_type, entry, &mut counted) {
                Ok(()) => {}
                Err(error) if error.is_limit() => {
                    faults.push("overrides", error.to_string());
                    break;
                }
                Err(error) => faults.push(format!("overrides[{index}]"), error.to_string()),
            }
        }
        Some(Self {
            provider,
            entry_type,
            overrides: params.overrides,
            blacklist: params.blacklist,
            caching_interval,
            caching_use_count: u32::try_from(uses).unwrap_or(0),
        })
    }
}

/// Validates the provider. Returns `None` if it has faults.
fn provider(
    faults: &mut Faults<'_>,
    url: &str,
    refresh_interval: Option<Duration>,
    ttl: Option<Duration>,
) -> Option<Provider> {
    if refresh_interval.is_some_and(|interval| interval < Duration::from_secs(1)) {
        faults.push("refresh_interval", "must be at least 1s");
    }
    if ttl.zip(refresh_interval).is_some_and(|(ttl, interval)| ttl < interval) {
        faults.push("ttl", "must not be shorter than refresh_interval");
    }
    let url = faults.check("provider_url", provider_url(url))?;
    faults.host("provider_url", url.host().unwrap_or_default());
    Some(Provider { url, refresh_interval: refresh_interval?, ttl: ttl? })
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use mixer_adapter_core::prost_types;

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
            let fields = match Faults::parse::<ListSettings>(params.clone()) {
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
        let settings = Faults::parse::<ListSettings>(Params::default()).unwrap();
        assert!(settings.provider.is_none());
        assert_eq!(settings.entry_type, EntryType::Strings);
        assert_eq!(settings.caching_interval, Duration::from_secs(300));
        assert_eq!(settings.caching_use_count, 10_000);
        let provider =
            Faults::parse::<ListSettings>(fetched("http://foo.com", None, None)).unwrap().provider.unwrap();
        assert_eq!(provider.refresh_interval, Duration::from_secs(60));
        assert_eq!(provider.ttl, Duration::from_secs(300));
        let zero = Params { caching_interval: seconds(0), caching_use_count: Some(0), ..Params::default() };
        let settings = Faults::parse::<ListSettings>(zero).unwrap();
        assert_eq!((settings.caching_interval, settings.caching_use_count), (Duration::ZERO, 0));
    }
}
