//! Sources with the collections that they serve.

use std::{collections::BTreeSet, fmt, str::FromStr};

use crate::url::{ConfigUrl, ConfigUrlError};
use mixer_adapter_config::{Collection, CollectionFilter};

/// A source with its collections, as in `--config`: `mcp://h:1?collections=rules,handlers`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Scoped<T> {
    /// Where the configuration comes from.
    pub url: T,
    /// The collections; `None` for all collections without another source.
    pub collections: Option<BTreeSet<Collection>>,
}

/// The part of a URL's query that names collections.
const QUERY: &str = "collections=";

impl<T: FromStr> FromStr for Scoped<T>
where
    ConfigUrlError: From<T::Err>,
{
    type Err = ConfigUrlError;

    fn from_str(text: &str) -> Result<Self, ConfigUrlError> {
        // Other settings belong to the URL.
        let (url, query) = text.rsplit_once('?').unwrap_or((text, ""));
        let (own, others): (Vec<_>, Vec<_>) = query.split('&').partition(|part| part.starts_with(QUERY));
        if own.is_empty() {
            return Ok(Self { url: text.parse()?, collections: None });
        }
        let names = own.iter().flat_map(|part| part[QUERY.len()..].split(','));
        let collections = names.map(collection).collect::<Result<_, _>>()?;
        let url = if others.is_empty() { url.to_owned() } else { format!("{url}?{}", others.join("&")) };
        Ok(Self { url: url.parse()?, collections: Some(collections) })
    }
}

/// Returns a collection by its full name, a collection of Mixer by its last segment, or the runtime layers by
/// `runtime`.
pub fn collection(name: &str) -> Result<Collection, ConfigUrlError> {
    match Collection::mixer().find(|collection| collection.as_str().rsplit('/').next() == Some(name)) {
        Some(collection) => Ok(collection),
        None if name == "runtime" => Ok(Collection::runtime()),
        None if name.trim_matches('/').contains('/') => Ok(Collection::new(name)),
        None => Err(ConfigUrlError::Collection(name.to_owned())),
    }
}

impl<T: fmt::Display> fmt::Display for Scoped<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.to_string();
        f.write_str(&url)?;
        let Some(collections) = &self.collections else { return Ok(()) };
        let names: Vec<&str> = collections.iter().map(Collection::as_str).collect();
        write!(f, "{}{QUERY}{}", if url.contains('?') { '&' } else { '?' }, names.join(","))
    }
}

/// Returns the filter of each source. One source may name no collections: it serves all collections that no other
/// source names.
pub fn collection_filters<'a>(
    sources: impl IntoIterator<Item = (String, Option<&'a BTreeSet<Collection>>)>,
) -> Result<Vec<CollectionFilter>, ConfigUrlError> {
    let sources: Vec<_> = sources.into_iter().collect();
    let mut named: BTreeSet<Collection> = BTreeSet::new();
    let mut rest: Option<&str> = None;
    for (index, (source, collections)) in sources.iter().enumerate() {
        let Some(collections) = collections else {
            if let Some(first) = rest.replace(source) {
                return Err(ConfigUrlError::DuplicateCatchAll(first.to_owned(), source.clone()));
            }
            continue;
        };
        for collection in *collections {
            if !named.insert(collection.clone()) {
                let first = sources[..index]
                    .iter()
                    .find(|(_, other)| other.is_some_and(|other| other.contains(collection)))
                    .map(|(first, _)| first.clone());
                return Err(ConfigUrlError::DuplicateCollection {
                    collection: collection.clone(),
                    first: first.unwrap_or_default(),
                    second: source.clone(),
                });
            }
        }
    }
    let filters = sources.iter().map(|(_, collections)| match collections {
        Some(own) => CollectionFilter::Only((*own).clone()),
        None => CollectionFilter::AllBut(named.clone()),
    });
    Ok(filters.collect())
}

/// A value of `--config`.
pub type ScopedUrl = Scoped<ConfigUrl>;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(parts: &[&str]) -> Result<Vec<CollectionFilter>, String> {
        let parts: Vec<ScopedUrl> = parts.iter().map(|part| part.parse().unwrap()).collect();
        collection_filters(parts.iter().map(|part| (part.url.to_string(), part.collections.as_ref())))
            .map_err(|error| error.to_string())
    }

    fn named(names: &[&str]) -> BTreeSet<Collection> {
        names.iter().map(|name| collection(name).unwrap()).collect()
    }

    #[test]
    fn collections_are_named_in_full_or_by_their_last_segment() {
        let part: ScopedUrl =
            "mcp://h:1?collections=rules,istio/config/v1alpha2/legacy/deniers".parse().unwrap();
        let own = part.collections.as_ref().unwrap();
        assert_eq!(*own, named(&["istio/policy/v1beta1/rules", "istio/config/v1alpha2/legacy/deniers"]));
        assert_eq!(part.to_string().parse::<ScopedUrl>().unwrap(), part);
        let error = "conf?collections=rulez".parse::<ScopedUrl>().unwrap_err().to_string();
        assert_eq!(
            error,
            "no collection is called \"rulez\"; write attributemanifests, templates, adapters, handlers, instances, \
             rules, runtime, or a full name such as istio/policy/v1beta1/rules"
        );
    }

    #[test]
    fn collections_stand_beside_the_settings_of_the_url_in_any_order() {
        for text in ["mcp://h:1?mode=resume&collections=rules", "mcp://h:1?collections=rules&mode=resume"] {
            let part: ScopedUrl = text.parse().unwrap();
            assert_eq!(
                (part.url.to_string(), part.collections.clone()),
                ("mcp://h:1?mode=resume".to_owned(), Some(named(&["rules"])))
            );
            assert_eq!(part.to_string(), "mcp://h:1?mode=resume&collections=istio/policy/v1beta1/rules");
        }
    }

    #[test]
    fn collections_that_are_named_repeatedly_add_up() {
        let part: ScopedUrl = "mcp://h:1?collections=rules&collections=handlers".parse().unwrap();
        assert_eq!(part.collections, Some(named(&["rules", "handlers"])));
    }

    #[test]
    fn one_source_alone_is_for_everything() {
        assert_eq!(of(&["conf"]), Ok(vec![CollectionFilter::AllBut(BTreeSet::new())]));
    }

    #[test]
    fn a_source_without_names_is_for_what_the_others_do_not_name() {
        let filters = of(&["conf", "mcp://h:1?collections=rules", "mcp://h:2?collections=handlers"]).unwrap();
        assert_eq!(filters[0], CollectionFilter::AllBut(named(&["rules", "handlers"])));
        assert_eq!(filters[1].collections(), [collection("rules").unwrap()]);
        let rest: Vec<String> = filters[0].collections().iter().map(ToString::to_string).collect();
        assert_eq!(
            rest,
            [
                "istio/policy/v1beta1/attributemanifests",
                "istio/config/v1alpha2/templates",
                "istio/config/v1alpha2/adapters",
                "istio/policy/v1beta1/instances"
            ]
        );
    }

    #[test]
    fn two_sources_for_one_collection_are_refused_by_name() {
        assert_eq!(
            of(&["mcp://h:1?collections=rules", "conf?collections=handlers,rules"]).unwrap_err(),
            "istio/policy/v1beta1/rules is to come from mcp://h:1 and from fs://conf; name it for one of them only"
        );
        assert_eq!(
            of(&["conf", "mcp://h:1"]).unwrap_err(),
            "fs://conf and mcp://h:1 are both for all collections; say what one of them is for, as in \
             mcp://h:1?collections=rules,handlers"
        );
    }
}
