//! The oracle of the servers' agreement. When the first server has applied an entry of the log, a
//! directory of the simulation's own applies it, too.

use crate::host::Violation;
use directory::{Directory, Input, MemoryStore, Output};
use lease::Time;
use raft::Logged;

/// The simulation's own directory, and the entries that the servers agreed on.
pub(crate) struct Oracle {
    pub directory: Directory,
    pub store: MemoryStore,
    pub time: Time,
    /// By index: the entry's term, and the digest of the state after it.
    pub entries: Vec<(u64, u64)>,
}

impl Oracle {
    /// An oracle before the first entry.
    pub fn new(directory: Directory, store: MemoryStore) -> Oracle {
        Oracle { directory, store, time: Time(0), entries: Vec::new() }
    }

    /// Applies the next entry. Returns each input with its outputs.
    pub fn does(&mut self, entry: &Logged) -> Result<Vec<(Input, Vec<Output>)>, Violation> {
        let index = self.entries.len();
        if entry.digest.is_some_and(|digest| digest != self.directory.digest()) {
            return Err(format!("entry {index} was proposed upon another state than that before it"));
        }
        let Some(inputs) = &entry.inputs else {
            return Err(format!("entry {index} was applied, and its version is unknown"));
        };
        self.time = self.time.max(entry.time);
        let mut done = Vec::new();
        for input in inputs.iter() {
            let mut out = Vec::new();
            let handled = self.directory.handle(self.time, input.clone(), &mut self.store, &mut out);
            handled.map_err(|e| e.to_string())?;
            if let Some((session, misdeed)) = self.directory.misdeeds().first() {
                return Err(format!("{session:?}: {misdeed}"));
            }
            done.push((input.clone(), out));
        }
        self.entries.push((entry.term, self.directory.digest()));
        Ok(done)
    }
}
