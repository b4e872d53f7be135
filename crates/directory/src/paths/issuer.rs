//! Issuing path leases, and recalling them.

use super::{IssuedPath, WantedPath, WayUp};
use crate::transaction::Transaction;
use ident::{FileId, ServerId};
use std::ops::ControlFlow;
use wire::{JointAge, JointId, PathStep};

impl Transaction<'_> {
    /// Takes in a question for a lease. One that is repeated is answered as before.
    pub(super) fn on_path_asked(&mut self, from: ServerId, dir: FileId, number: u64, age: Option<JointAge>) {
        let key = (dir, from);
        match self.files.paths.issued.get(&key) {
            Some(issued) if issued.number > number || issued.number == number && issued.is_recalled => return,
            // The asker has given up what it had.
            Some(issued) if issued.number < number => {
                self.on_path_released(from, key.0.clone(), number - 1);
            }
            Some(_) | None => {}
        }
        let wanted = &mut self.files.paths.wanted;
        if wanted.get(&key).is_none_or(|before| before.number <= number) {
            let before = wanted.get(&key).filter(|before| before.number == number).and_then(|it| it.age);
            let age = before.into_iter().chain(age).min();
            wanted.insert(key, WantedPath { number, age });
            self.ways_changed = true;
        }
    }

    /// Takes in that a lease is given up, and every earlier one.
    pub(super) fn on_path_released(&mut self, from: ServerId, dir: FileId, number: u64) {
        let key = (dir, from);
        let paths = &mut self.files.paths;
        if paths.wanted.get(&key).is_some_and(|wanted| wanted.number <= number) {
            paths.wanted.remove(&key);
            self.ways_changed = true;
        }
        if paths.issued.get(&key).is_some_and(|issued| issued.number <= number) {
            paths.issued.remove(&key);
            self.ways_changed = true;
        }
    }

    /// Answers the questions that can be answered now.
    pub(super) fn issue_paths(&mut self) {
        for ((dir, to), WantedPath { number, age }) in self.files.paths.wanted.clone() {
            let Some(answer) = self.way_above(&dir, age) else { continue };
            self.files.paths.wanted.remove(&(dir.clone(), to));
            if let PathStep::Issued { .. } = answer {
                let issued = IssuedPath { number, is_recalled: false };
                self.files.paths.issued.insert((dir.clone(), to), issued);
            }
            self.say_path(to, dir, number, answer);
        }
    }

    /// The answer to a question for the directories above `dir`. None: it has to wait, for a lease
    /// that this server needs itself, for an operation, or for a region that is about to leave.
    fn way_above(&mut self, dir: &FileId, age: Option<JointAge>) -> Option<PathStep> {
        if !self.files.regions.manage(dir) {
            return Some(PathStep::NotHere { server: self.files.regions.server_of(dir) });
        }
        loop {
            let mut above = Vec::new();
            let files = &self.files;
            let way = files.climb(dir, |at| {
                above.push(at.clone());
                files.paths.moving.contains_key(at) || files.regions.are_leaving(at)
            });
            match way {
                WayUp::Root => {}
                WayUp::Held(held) if held.is_recalled => return None,
                WayUp::Held(held) => above.extend_from_slice(&held.above),
                WayUp::Nameless(_) => return Some(PathStep::Gone),
                WayUp::Endless => return None,
                WayUp::Elsewhere(other) => {
                    self.ask_path(other, age);
                    return None;
                }
                WayUp::Stopped(at) => match age.map(|age| self.asks_to_give_way(&at, age)) {
                    Some(ControlFlow::Continue(())) => continue,
                    Some(ControlFlow::Break(())) | None => return None,
                },
            }
            return Some(PathStep::Issued { above: above.split_off(1) });
        }
    }

    /// A question of this age is blocked at a directory that is about to move. A younger operation
    /// gives way, and so does one that waits for itself: it finds its loop when it begins anew.
    /// Goes on if it has done so at once.
    pub(crate) fn asks_to_give_way(&mut self, dir: &FileId, age: JointAge) -> ControlFlow<()> {
        let Some(by) = self.files.paths.moved_by(dir) else { return ControlFlow::Break(()) };
        let gives_way = self.state.server.joint.age_of(by).is_some_and(|of| of >= age) && self.wound(by);
        if gives_way { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    /// Recalls the issued leases whose holders know of a directory such as these above theirs, as
    /// far as the walk on this server tells. Whether there is any.
    pub(crate) fn recall_paths_over(&mut self, is_changed: impl Fn(&FileId) -> bool) -> bool {
        let files = &self.files;
        let is_over = |dir: &FileId| matches!(files.climb(dir, &is_changed), WayUp::Stopped(_));
        let over: Vec<(FileId, ServerId)> =
            files.paths.issued.keys().filter(|(dir, _)| is_over(dir)).cloned().collect();
        over.iter().for_each(|key| self.recall_path(key));
        !over.is_empty()
    }

    /// Whether any lease is issued whose holder knows `dir`, as far as the walk here tells.
    pub(crate) fn is_path_issued_over(&self, dir: &FileId) -> bool {
        self.files.paths.issued.keys().any(|(of, _)| self.files.comes_by(of, dir))
    }

    /// Recalls the leases on directories that are gone. Nothing is above them any more.
    pub(crate) fn recall_paths_of(&mut self, dead: &[FileId]) {
        let issued = self.files.paths.issued.keys();
        let of_dead: Vec<_> = issued.filter(|(dir, _)| dead.contains(dir)).cloned().collect();
        of_dead.iter().for_each(|key| self.recall_path(key));
    }

    fn recall_path(&mut self, (dir, to): &(FileId, ServerId)) {
        let issued = self.files.paths.issued.get_mut(&(dir.clone(), *to));
        let Some(issued) = issued.filter(|issued| !issued.is_recalled) else { return };
        issued.is_recalled = true;
        let number = issued.number;
        self.say_path(*to, dir.clone(), number, PathStep::Recall);
    }

    /// Whether the operation may give `dir` another parent: no path lease is left that `dir` is in,
    /// and none is issued until the operation is over. An older operation goes first that may need
    /// to know the way: otherwise this one could take the directory again each time that it gives
    /// way.
    pub(crate) fn may_move(&mut self, op: JointId, dir: &FileId) -> bool {
        let joint = &self.state.server.joint;
        let Some(age) = joint.age_of(op) else { return false };
        let wanted = self.files.paths.wanted.iter();
        let wanted = wanted.filter(|(_, wanted)| wanted.age.is_some_and(|of| of <= age));
        let older: Vec<&FileId> = wanted.map(|((of, _), _)| of).chain(joint.ways_of_older(age)).collect();
        if older.into_iter().any(|of| self.files.comes_by(of, dir)) {
            return false;
        }
        self.files.paths.moving.insert(dir.clone(), op);
        !self.recall_paths_over(|at| at == dir)
    }
}
