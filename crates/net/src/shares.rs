use std::{
    collections::{BTreeSet, HashMap},
    hash::Hash,
};

/// The amounts of a limited resource by owner. At the limit, the owner that holds the most loses first.
///
/// - The amount of an owner is the sum of its additions less its removals; owners without an amount are forgotten.
/// - The heaviest owner holds at least as much as every other one; of equals, the greatest is the heaviest.
/// - Every operation takes logarithmic time, apart from [`can_spare`](Self::can_spare).
#[derive(Debug)]
pub struct Shares<O> {
    amounts: HashMap<O, usize>,
    by_amount: BTreeSet<(usize, O)>,
}

impl<O> Default for Shares<O> {
    fn default() -> Self {
        Self { amounts: HashMap::new(), by_amount: BTreeSet::new() }
    }
}

impl<O: Copy + Eq + Hash + Ord> Shares<O> {
    /// Adds to the amount of an owner.
    pub fn add(&mut self, owner: O, amount: usize) {
        self.set(owner, self.amount(owner).saturating_add(amount));
    }

    /// Removes from the amount of an owner.
    pub fn remove(&mut self, owner: O, amount: usize) {
        self.set(owner, self.amount(owner).saturating_sub(amount));
    }

    /// Returns the amount of an owner.
    pub fn amount(&self, owner: O) -> usize {
        self.amounts.get(&owner).copied().unwrap_or_default()
    }

    /// Returns the owner with the largest amount, if this is more than `fair`.
    pub fn heaviest(&self, fair: usize) -> Option<O> {
        self.by_amount.last().filter(|(amount, _)| *amount > fair).map(|(_, owner)| *owner)
    }

    /// Returns whether the owners with more than `fair` hold at least `excess` beyond it. Takes time in proportion to their number.
    pub fn can_spare(&self, excess: usize, fair: usize) -> bool {
        let mut missing = excess;
        let mut heavier = self.by_amount.iter().rev().take_while(|(amount, _)| *amount > fair);
        while missing > 0
            && let Some((amount, _)) = heavier.next()
        {
            missing = missing.saturating_sub(amount - fair);
        }
        missing == 0
    }

    fn set(&mut self, owner: O, amount: usize) {
        let former = match amount {
            0 => self.amounts.remove(&owner),
            _ => self.amounts.insert(owner, amount),
        };
        if let Some(former) = former {
            self.by_amount.remove(&(former, owner));
        }
        if amount > 0 {
            self.by_amount.insert((amount, owner));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_owner_that_is_alone_may_hold_everything() {
        let mut shares = Shares::default();
        shares.add("a", 100);
        assert_eq!(shares.heaviest(shares.amount("a")), None);
        assert!(!shares.can_spare(1, 100));
    }

    #[test]
    fn the_heaviest_loses_until_nobody_holds_more_than_the_newcomer() {
        let mut shares = Shares::default();
        shares.add("a", 7);
        shares.add("b", 3);
        let mut lost = Vec::new();
        for newcomer in 1..9 {
            let Some(heaviest) = shares.heaviest(newcomer) else { break };
            shares.remove(heaviest, 1);
            shares.add("c", 1);
            lost.push(heaviest);
        }
        // With a fourth, the newcomer would hold as much as the heaviest.
        assert_eq!((lost, shares.amount("c")), (vec!["a"; 3], 3));
    }

    proptest! {
        #[test]
        fn amounts_are_exact_and_ordered(changes in prop::collection::vec((0_u8..6, 0_usize..9, any::<bool>()), 0..99)) {
            let (mut shares, mut model) = (Shares::default(), BTreeMap::<u8, usize>::new());
            for (owner, amount, adds) in changes {
                let known = model.entry(owner).or_default();
                if adds {
                    shares.add(owner, amount);
                    *known += amount;
                } else {
                    shares.remove(owner, amount);
                    *known = known.saturating_sub(amount);
                }
                let most = model.iter().map(|(owner, amount)| (*amount, *owner)).max();
                prop_assert_eq!(shares.heaviest(0), most.filter(|(amount, _)| *amount > 0).map(|(_, owner)| owner));
                prop_assert_eq!(shares.amounts.len(), model.values().filter(|amount| **amount > 0).count());
                for fair in 0..12 {
                    let spare: usize = model.values().map(|amount| amount.saturating_sub(fair)).sum();
                    prop_assert!(shares.can_spare(spare, fair) && !shares.can_spare(spare + 1, fair));
                }
            }
        }
    }
}
