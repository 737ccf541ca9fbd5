//! What a source of configuration hands to the application, and what that says to it.

use std::{fmt, sync::Arc};

use tokio::sync::oneshot;

use super::Resource;

/// News of one collection.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The collection, such as `istio/policy/v1beta1/rules`.
    pub collection: Arc<str>,
    /// The version of the collection as its source calls it, for people.
    pub version: String,
    /// Whether `resources` are all there are: then whatever else was known of the collection is gone.
    pub full: bool,
    /// What was added or changed.
    pub resources: Vec<Arc<Resource>>,
    /// The names of what is gone.
    pub removed: Vec<String>,
}

/// What is wrong with a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The resource's name; empty where the fault is not that of a single one.
    pub resource: String,
    /// What is wrong, for the person who wrote it.
    pub reason: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.resource.is_empty() {
            write!(f, "{}: ", self.resource)?;
        }
        f.write_str(&self.reason)
    }
}

/// Why a change is refused. All of it is, unless bad resources are to be skipped and every fault names one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// What is wrong; at least one fault.
    pub faults: Vec<Fault>,
}

/// How many faults a text lists; it travels to the source and into logs.
const LISTED: usize = 5;

impl Rejection {
    /// Refuses for a reason that is not that of a single resource.
    pub fn whole(reason: impl Into<String>) -> Self {
        Self { faults: vec![Fault { resource: String::new(), reason: reason.into() }] }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().take(LISTED).enumerate() {
            write!(f, "{}{fault}", if index > 0 { "; " } else { "" })?;
        }
        if self.faults.len() > LISTED {
            write!(f, "; and {} more", self.faults.len() - LISTED)?;
        }
        Ok(())
    }
}

/// What the application says to a change.
pub type Verdict = Result<(), Rejection>;

/// A change that waits for the application to accept or refuse it. Dropped, it counts as refused.
#[derive(Debug)]
pub struct Delivery {
    change: Change,
    verdict: oneshot::Sender<Verdict>,
}

impl Delivery {
    /// A change, and where the verdict on it will arrive.
    pub fn new(change: Change) -> (Self, oneshot::Receiver<Verdict>) {
        let (verdict, receiver) = oneshot::channel();
        (Self { change, verdict }, receiver)
    }

    /// What is new.
    pub fn change(&self) -> &Change {
        &self.change
    }

    /// It is live, or will be without fail: its source is told so.
    pub fn accept(self) {
        // Nobody listens any more when the source itself has ended.
        let _ = self.verdict.send(Ok(()));
    }

    /// It is not taken; what was there before stays.
    pub fn reject(self, rejection: Rejection) {
        let _ = self.verdict.send(Err(rejection));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_lists_the_first_faults_and_counts_the_rest() {
        let fault = |n: usize| Fault { resource: format!("ns/{n}"), reason: "bad".to_owned() };
        let told = Rejection { faults: (1..=2).map(fault).collect() }.to_string();
        assert_eq!(told, "ns/1: bad; ns/2: bad");
        let told = Rejection { faults: (1..=9).map(fault).collect() }.to_string();
        assert_eq!(told, "ns/1: bad; ns/2: bad; ns/3: bad; ns/4: bad; ns/5: bad; and 4 more");
        assert_eq!(Rejection::whole("no").to_string(), "no");
    }
}
