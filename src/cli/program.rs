//! The program whose command line this is.

use std::{env, sync::OnceLock};

/// The name of this framework's own program, which the help texts have.
const OWN_NAME: &str = env!("CARGO_PKG_NAME");

static PROGRAM: OnceLock<Program> = OnceLock::new();

/// A program: its name and version, and the configurations that are embedded in it.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) sample: Option<&'static str>,
    #[cfg_attr(not(feature = "envoy"), allow(dead_code))]
    pub(super) tour: Option<&'static str>,
}

impl Program {
    /// Creates a program without configurations. The name is in help, and in upper case before `_` the prefix of environment
    /// variables.
    pub const fn new(name: &'static str, version: &'static str) -> Self {
        Self { name, version, sample: None, tour: None }
    }

    /// Sets the configuration of commands without `--config`.
    #[must_use]
    pub fn with_sample(self, text: &'static str) -> Self {
        Self { sample: Some(text), ..self }
    }

    /// Sets the configuration of the demonstration of `try`, in place of the sample.
    #[must_use]
    pub fn with_tour(self, text: &'static str) -> Self {
        Self { tour: Some(text), ..self }
    }

    /// Makes this the program of the process.
    pub(super) fn enter(self) {
        let _is_first = PROGRAM.set(self);
    }
}

/// Returns the program of the process; this framework's own one in unit tests.
pub(super) fn current() -> Program {
    PROGRAM.get().copied().unwrap_or(Program::new(OWN_NAME, env!("CARGO_PKG_VERSION")))
}

/// Returns the name of the program.
pub(super) fn name() -> &'static str {
    current().name
}

/// Returns the prefix of environment variables, `MIXER_ADAPTER_`.
pub(super) fn prefix() -> String {
    name().to_uppercase().replace('-', "_") + "_"
}

/// Returns a text with the name and the prefix of this program in place of `mixer-adapter ` and `MIXER_ADAPTER_`.
pub(super) fn localized(text: &str) -> String {
    text.replace("mixer-adapter ", &format!("{} ", name())).replace("MIXER_ADAPTER_", &prefix())
}

/// Returns the program as it was called, quoted for a shell if necessary: `target/debug/mixer-adapter`.
pub(super) fn invocation() -> String {
    let called = env::args().next().filter(|called| !called.is_empty());
    let called = called.unwrap_or_else(|| name().to_owned());
    shlex::try_quote(&called).map(Into::into).unwrap_or(called)
}
