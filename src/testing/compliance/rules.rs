//! The rules of `docs/adapter-contract.md`, with the same order and names.

/// A rule of the contract.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    /// How to repair an adapter that breaks it.
    pub(crate) repair: &'static str,
}

pub(crate) const RULES: [Rule; 17] = [
    Rule {
        name: "descriptors",
        repair: "generate configuration and templates with mixer-adapter-build, and name the configuration `Params`",
    },
    Rule {
        name: "takes-its-configuration",
        repair: "give the suite a configuration that the adapter accepts, and state in which its services answer",
    },
    Rule {
        name: "threads-are-not-blocked",
        repair: "await instead of blocking, use spawn_blocking, or declare `const BLOCKING: bool = true`",
    },
    Rule {
        name: "refusals-name-the-field",
        repair: "reject it in `Settings::parse` with `faults`, or in `open` with `ConfigErrors` and the path of the field",
    },
    Rule {
        name: "sessions-are-counted",
        repair: "let sessions with equal configurations be used until the last one is closed",
    },
    Rule {
        name: "unknown-session",
        repair: "answer NOT_FOUND to a session id that no CreateSession returned",
    },
    Rule {
        name: "every-instance-is-answered",
        repair: "expect absent and unusual values; if only few instances are valid, give the suite one of them as an example",
    },
    Rule {
        name: "denials-are-answers",
        repair: "return `Ok(Check::deny(code, reason))` or `Ok(Grant::nothing())`; an error means that the adapter failed",
    },
    Rule {
        name: "answers-hold",
        repair: "answer equal instances equally, or end an answer that may change with `.no_cache()` or a short `.valid_for(..)`",
    },
    Rule {
        name: "checks-have-an-opinion",
        repair: "use `Check::allow()`, with `.valid_for(..)` and `.uses(..)`; `Check::no_opinion()` is for answers that others give",
    },
    Rule {
        name: "quota-grants",
        repair: "without best effort grant the whole amount or `Grant::nothing()`, and never a negative amount",
    },
    Rule {
        name: "cancelled-calls-leave-nothing",
        repair: "hold permits, locks and counts in guards that are dropped with the call, not until a line after an `.await`",
    },
    Rule {
        name: "handlers-close",
        repair: "let `close` end, without a panic, and `open` work again after it",
    },
    Rule {
        name: "handlers-release-everything",
        repair: "start tasks with `context.spawn(..)`; hold memory, files and threads in the handler, not in statics",
    },
    Rule {
        name: "panics-are-contained",
        repair: "leave nothing in a state that a call which panics at an `.await` does not restore",
    },
    Rule {
        name: "deadlines-are-honoured",
        repair: "limit the time that a blocking call takes, for example by `call.time_left(..)`",
    },
    Rule { name: "calls-are-counted", repair: "this is a defect of the framework: please report it" },
];

#[cfg(test)]
mod tests {
    use super::RULES;

    #[test]
    fn the_contract_has_the_same_rules_in_the_same_order() {
        let contract = include_str!("../../../docs/adapter-contract.md");
        let named = contract.lines().filter_map(|line| line.strip_prefix("**")?.split_once("** "));
        let named: Vec<&str> = named.map(|(name, _)| name).collect();
        assert_eq!(named, RULES.map(|rule| rule.name));
    }
}
