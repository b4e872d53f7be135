//! The log of a lone server.

use directory::{Directory, Input, Output};
use lease::Time;
use std::collections::VecDeque;

/// The replica's log.
#[derive(Debug, Default)]
pub(crate) struct Lone {
    /// Entries that are not applied yet.
    pub pending: VecDeque<(Time, Input)>,
    /// The time at which the last of them will be applied.
    pub applied_at: u64,
    /// Entries that are applied and not durable, with their outputs. No output that left rests on a
    /// lasting one of them.
    pub unsaid: Vec<(Time, Input, Vec<Output>)>,
    /// Whether any of them lasts.
    pub lasting: bool,
    /// Durable entries since the checkpoint.
    pub log: Vec<(Time, Input)>,
    /// The digest of the state after the last of them.
    pub digest: u64,
}

impl Lone {
    /// A log for this state.
    pub fn new(directory: &Directory) -> Lone {
        Lone { digest: directory.digest(), ..Lone::default() }
    }

    /// Whether nothing is on its way to the disk.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }
}
