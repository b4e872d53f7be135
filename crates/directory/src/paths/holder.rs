//! Asking for path leases, and giving them back.

use super::{AskedPath, DEPTH_MAX, HeldPath};
use crate::transaction::Transaction;
use ident::{FileId, ServerId};
use wire::{JointAge, PathStep};

impl Transaction<'_> {
    /// Asks for the lease on another server's directory, if it is not asked for already. `age` is
    /// of the operation that waits, if one does.
    pub(crate) fn ask_path(&mut self, dir: FileId, age: Option<JointAge>) {
        let paths = &mut self.files.paths;
        if let Some(asked) = paths.asked.get_mut(&dir) {
            let oldest = asked.age.into_iter().chain(age).min();
            if asked.age == oldest {
                return;
            }
            asked.age = oldest;
        } else {
            paths.latest += 1;
            let number = paths.latest;
            let of = self.asked_first(&dir);
            self.files.paths.asked.insert(dir.clone(), AskedPath { of, number, age });
        }
        self.ask_path_again(&dir);
    }

    /// Says the question once more, to the server that has the directory now.
    pub(super) fn ask_path_again(&mut self, dir: &FileId) {
        if self.files.regions.manage(dir) {
            self.files.paths.asked.remove(dir);
            self.ways_changed = true;
            return;
        }
        let Some(asked) = self.files.paths.asked.get_mut(dir) else { return };
        if asked.of == self.files.regions.server() {
            asked.of = self.files.regions.server_of(dir);
        }
        let AskedPath { of, number, age } = *asked;
        self.say_path(of, dir.clone(), number, PathStep::Ask { age });
    }

    /// Whether `from` is asked for this.
    fn is_path_asked(&self, from: ServerId, dir: &FileId, number: u64) -> bool {
        let asked = self.files.paths.asked.get(dir);
        asked.is_some_and(|asked| (asked.of, asked.number) == (from, number))
    }

    /// Whether this is a lease of `from`.
    fn is_path_held(&self, from: ServerId, dir: &FileId, number: u64) -> bool {
        let held = self.files.paths.held.get(dir);
        held.is_some_and(|held| (held.issuer, held.number) == (from, number))
    }

    /// Takes in a lease. One that is not asked for any more goes back.
    pub(super) fn on_path_issued(&mut self, from: ServerId, dir: FileId, number: u64, above: Vec<FileId>) {
        if self.is_path_held(from, &dir, number) {
            return;
        }
        let is_whole = above.last().is_some_and(|last| *last == FileId::root()) || dir == FileId::root();
        if !self.is_path_asked(from, &dir, number) || !is_whole || above.len() > DEPTH_MAX {
            return self.say_path(from, dir, number, PathStep::Released);
        }
        self.files.paths.asked.remove(&dir);
        self.files.paths.held.insert(dir, HeldPath { issuer: from, number, above, is_recalled: false });
        self.ways_changed = true;
    }

    /// Takes in that there is no way up from the directory. An operation that still wants to know
    /// finds so in its own way.
    pub(super) fn on_path_gone(&mut self, from: ServerId, dir: &FileId, number: u64) {
        if self.is_path_asked(from, dir, number) {
            self.files.paths.asked.remove(dir);
        }
    }

    pub(super) fn on_path_elsewhere(&mut self, from: ServerId, dir: &FileId, number: u64, server: ServerId) {
        if self.is_path_asked(from, dir, number)
            && let Some(asked) = self.files.paths.asked.get_mut(dir)
        {
            asked.of = server;
            self.state.server.joint.is_at(dir, server);
            // A region that comes to this server is not here yet: the next tick asks again.
            if server != self.files.regions.server() {
                self.ask_path_again(dir);
            }
        }
    }

    /// The issuer wants the lease back. One that is not held is given up for ever: it may still be
    /// on its way.
    pub(super) fn on_path_recalled(&mut self, from: ServerId, dir: FileId, number: u64) {
        if self.is_path_held(from, &dir, number)
            && let Some(held) = self.files.paths.held.get_mut(&dir)
        {
            held.is_recalled = true;
            self.ways_changed = true;
            return;
        }
        if self.is_path_asked(from, &dir, number) {
            self.files.paths.asked.remove(&dir);
            self.ways_changed = true;
        }
        self.say_path(from, dir, number, PathStep::Released);
    }

    /// Gives back what is recalled and nothing rests on any more.
    pub(super) fn release_paths(&mut self) {
        let held = self.files.paths.held.iter().filter(|(_, held)| held.is_recalled);
        let recalled: Vec<FileId> = held.map(|(dir, _)| dir.clone()).collect();
        for dir in recalled {
            if self.recall_paths_over(|at| *at == dir) {
                continue;
            }
            if let Some(HeldPath { issuer, number, .. }) = self.files.paths.held.remove(&dir) {
                self.subtrees.get_mut().forget();
                self.say_path(issuer, dir, number, PathStep::Released);
            }
        }
    }
}
