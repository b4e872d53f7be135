//! The log that the replicas agreed on.

use super::members::Members;
use crate::host::Violation;
use directory::Output;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The log that the replicas together agreed on, as far as the simulation knows.
#[derive(Debug, Default)]
pub(crate) struct AgreedLog {
    /// By index, from 1: the entry's term.
    pub terms: Vec<u64>,
    /// By index, from 1: the digest after the entry.
    pub digests: Vec<u64>,
    pub said: BTreeMap<u64, Vec<Vec<Output>>>,
    /// By index: a hash of all rows.
    pub rows: BTreeMap<u64, u64>,
    /// The members that decided, in order, each with its first entry.
    pub members: Vec<(u64, Rc<Members>)>,
}

impl AgreedLog {
    /// A log in which these members decide at first.
    pub fn new(members: Members) -> AgreedLog {
        AgreedLog { members: vec![(0, Rc::new(members))], ..AgreedLog::default() }
    }

    /// The number of committed entries.
    pub fn committed(&self) -> u64 {
        self.terms.len() as u64
    }

    /// Whether no replica has applied this entry before.
    pub fn is_first(&self, index: u64) -> bool {
        self.digests.len() as u64 == index - 1
    }

    /// A replica takes this entry for committed. `by` is the leader's term, if the replica leads.
    /// Returns whether the entry is an earlier leader's that survived.
    pub fn commits(
        &mut self,
        replica: usize,
        index: u64,
        term: u64,
        by: Option<u64>,
    ) -> Result<bool, Violation> {
        let agreed = self.terms.get(index as usize - 1).copied();
        match (agreed, by) {
            (Some(agreed), _) if agreed == term => Ok(false),
            (None, Some(by)) if self.committed() == index - 1 => {
                self.terms.push(term);
                Ok(by > term)
            }
            _ => Err(format!(
                "replica {replica} takes entry {index} of term {term} for committed, which is {agreed:?}"
            )),
        }
    }
}
