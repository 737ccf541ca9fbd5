//! Adapters for the framework's tests. Their configuration and instances determine what they do.

mod blocker;
mod bystander;
mod careless;
pub mod ledger;
pub mod probe;
pub mod recorded;

pub use blocker::Blocker;
pub use bystander::Bystander;
pub use careless::Careless;
pub use ledger::{Ledger, ledger};
pub use probe::Probe;
pub use recorded::Recorded;

/// The configuration messages, by adapter.
pub mod params {
    pub mod blocker {
        mixer_adapter::include_proto!("test.blocker");
    }
    pub mod bystander {
        mixer_adapter::include_proto!("test.bystander");
    }
    pub mod careless {
        mixer_adapter::include_proto!("test.careless");
    }
    pub mod probe {
        mixer_adapter::include_proto!("test.probe");
    }
    pub mod recorded {
        mixer_adapter::include_proto!("example.mixer");
    }
}

/// An attribute generator that a real Mixer was recorded with.
pub mod ownergen {
    mixer_adapter::include_proto!("example.ownergen");
}

/// A check with output that a real Mixer was recorded with.
pub mod tagcheck {
    mixer_adapter::include_proto!("example.tagcheck");
}
