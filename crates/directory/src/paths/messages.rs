//! The messages about path leases, as they come and go.

use crate::io::Output;
use crate::transaction::Transaction;
use ident::{FileId, ServerId};
use wire::{PathLease, PathStep};

/// Messages without an answer are said again after this time, ms.
const AGAIN_MS: u64 = 100;

impl Transaction<'_> {
    /// Takes a message of another server about a path lease.
    pub fn on_path_lease(&mut self, from: ServerId, PathLease { dir, number, step }: PathLease) {
        if from == self.files.regions.server() {
            return;
        }
        match step {
            PathStep::Ask { age } => self.on_path_asked(from, dir, number, age),
            PathStep::Issued { above } => self.on_path_issued(from, dir, number, above),
            PathStep::Gone => self.on_path_gone(from, &dir, number),
            PathStep::NotHere { server } => self.on_path_elsewhere(from, &dir, number, server),
            PathStep::Recall => self.on_path_recalled(from, dir, number),
            PathStep::Released => self.on_path_released(from, dir, number),
        }
    }

    pub(super) fn say_path(&mut self, to: ServerId, dir: FileId, number: u64, step: PathStep) {
        self.out.push(Output::PathLease { to, message: PathLease { dir, number, step } });
    }

    /// Something has changed about ways to the root: leases come and go, and what waits for them
    /// goes on.
    pub fn continue_ways(&mut self) {
        self.release_paths();
        self.issue_paths();
        self.decide_waiting();
        self.wake_the_limited();
        self.continue_lending();
    }

    /// Time has passed, or a leader begins that does not know what was said.
    pub fn continue_paths(&mut self, is_new_leader: bool) {
        let paths = &mut self.files.paths;
        if !(is_new_leader || paths.are_asked_for() && self.now.ms_since(paths.said) >= AGAIN_MS) {
            return;
        }
        paths.said = self.now;
        let asked: Vec<FileId> = paths.asked.keys().cloned().collect();
        let recalled = paths.issued.iter().filter(|(_, issued)| issued.is_recalled);
        let recalled: Vec<_> = recalled.map(|(key, issued)| (key.clone(), issued.number)).collect();
        asked.iter().for_each(|dir| self.ask_path_again(dir));
        for ((dir, to), number) in recalled {
            self.say_path(to, dir, number, PathStep::Recall);
        }
        self.ways_changed = true;
    }
}
