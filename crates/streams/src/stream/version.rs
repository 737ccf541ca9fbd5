use super::raw_resource::RawResource;

/// The version of a collection: a digest of its content, independent of the order of resources. A change of a resource
/// updates it in constant time.
///
/// It is the sum of the resources' digests. This distinguishes versions, but does not protect against constructed
/// resources whose contents share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContentVersion(u128);

impl ContentVersion {
    /// Returns the version of that content.
    pub fn of<'a>(resources: impl IntoIterator<Item = &'a RawResource>) -> Self {
        Self::of_digests(resources.into_iter().map(RawResource::digest))
    }

    /// Returns the version of content with these digests.
    pub(crate) fn of_digests(digests: impl IntoIterator<Item = u128>) -> Self {
        let mut version = Self::default();
        digests.into_iter().for_each(|digest| version.add(digest));
        version
    }

    pub(super) fn add(&mut self, digest: u128) {
        self.0 = self.0.wrapping_add(digest);
    }

    pub(super) fn remove(&mut self, digest: u128) {
        self.0 = self.0.wrapping_sub(digest);
    }
}

impl std::fmt::Display for ContentVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_does_not_matter_and_taking_out_undoes_putting_in() {
        let resource = |name: &str| RawResource { name: name.to_owned(), ..RawResource::default() };
        let (a, b, c) = (resource("a"), resource("b"), resource("c"));
        let mut version = ContentVersion::of([&a, &b, &c]);
        assert_eq!(version, ContentVersion::of([&c, &a, &b]));
        version.remove(b.digest());
        assert_eq!(version, ContentVersion::of([&c, &a]));
        assert_ne!(version, ContentVersion::of([&a]));
        assert_eq!(ContentVersion::default().to_string(), "0".repeat(32), "nothing has a version too");
    }
}
