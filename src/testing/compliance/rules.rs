//! The rules of `docs/adapter-contract.md`, with the same order and names.

use std::sync::LazyLock;

/// A rule of the contract.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) name: &'static str,
    /// How to repair an adapter that breaks it.
    pub(crate) repair: &'static str,
}

/// The rules, which have a line each.
pub(crate) static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let lines = include_str!("rules.txt").lines().filter_map(|line| line.split_once(": "));
    lines.map(|(name, repair)| Rule { name, repair }).collect()
});

#[cfg(test)]
mod tests {
    use super::RULES;

    #[test]
    fn the_contract_has_the_same_rules_in_the_same_order() {
        let contract = include_str!("../../../docs/adapter-contract.md");
        let named = contract.lines().filter_map(|line| line.strip_prefix("**")?.split_once("** "));
        let named: Vec<&str> = named.map(|(name, _)| name).collect();
        assert_eq!(named, RULES.iter().map(|rule| rule.name).collect::<Vec<_>>());
    }
}
