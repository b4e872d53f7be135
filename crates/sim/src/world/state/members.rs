//! The members of a group.

use std::collections::BTreeSet;

/// The members. No two ever have the same number: a server that comes back without its disk is
/// another member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Members {
    /// The sets of voters, of each of which a majority is needed: one set, or two while the second
    /// takes the first's place.
    pub voters: Vec<BTreeSet<u64>>,
    pub learners: BTreeSet<u64>,
}

impl Members {
    /// Members that all vote.
    pub fn of(voters: impl IntoIterator<Item = u64>) -> Members {
        Members { voters: vec![voters.into_iter().collect()], learners: BTreeSet::new() }
    }

    pub fn all(&self) -> BTreeSet<u64> {
        self.voters.iter().flatten().chain(&self.learners).copied().collect()
    }

    pub fn vote(&self, member: u64) -> bool {
        self.voters.iter().any(|voters| voters.contains(&member))
    }

    /// The index that a majority has reached, where `of` is how far each has come.
    pub fn reach(&self, of: impl Fn(u64) -> u64) -> u64 {
        let majority = |voters: &BTreeSet<u64>| {
            let mut reached: Vec<u64> = voters.iter().map(|member| of(*member)).collect();
            reached.sort_unstable();
            let at = (reached.len().max(1) - 1) / 2;
            reached.get(at).copied().unwrap_or_default()
        };
        self.voters.iter().map(majority).min().unwrap_or_default()
    }

    /// Whether those are a majority.
    pub fn suffice(&self, those: impl Fn(u64) -> bool) -> bool {
        self.reach(|member| u64::from(those(member))) == 1
    }
}
