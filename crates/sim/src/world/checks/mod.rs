//! The checks, one file each.

mod acknowledged;
mod authority;
mod contents;
pub(super) mod inodes;
mod leases;
mod liveness;
mod members;
mod names;
mod prefix;
mod reads;
mod registers;
mod replaced;
mod replicas;
mod rights;
mod rot;
mod soon;
mod times;

use super::events::Event;
use super::history::History;
use super::{Violation, World};

/// Time between checks of what must hold at any time, ms; and how many of them come to one check of
/// the server's whole state.
const LOOK_MS: u64 = 150;
const LOOKS_PER_STATE: u64 = 30;

impl World {
    /// Checks what must hold at any time.
    pub(super) fn looks(&mut self) -> Result<(), Violation> {
        self.later(LOOK_MS, Event::Looks);
        self.check_leases()?;
        if self.one_in(LOOKS_PER_STATE) { self.check_authority() } else { Ok(()) }
    }
}

impl History {
    /// Checks the history of the whole run.
    pub(super) fn check(&self) -> Result<(), Violation> {
        self.check_acknowledged()?;
        self.check_prefixes()?;
        self.check_names()?;
        self.check_contents()?;
        self.check_times()
    }
}
