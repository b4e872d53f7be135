//! Machines with restricted rights: within a directory, only to read, or as one user. Their
//! programs work there like any, and now and then ask for something elsewhere. The machine itself
//! sends requests that its client would not.

use super::machine::QUESTION;
use super::workload::NOBODY;
use super::{Mutation, Violation, World};
use crate::calls::create;
use crate::names::label;
use client::Call;
use directory::Input;
use ident::FileId;
use lease::{Field, Kind, Lease};
use namespace::{FileKind, Operation, operation};
use wire::{AskMode, MachineId, Rights, ToServer};

/// The user that the users of some of them count as.
const USER: u32 = 1_000;
/// Files that stay within.
const WITHIN: [&str; 2] = ["mine", "yours"];
/// Time that the simulation waits for the server to enrol a machine, ms.
const WAIT_MS: u64 = 3_000;

impl World {
    pub(super) fn is_limited(&self, at: usize) -> bool {
        self.limits.rights.contains_key(&MachineId(at as u64 + 1))
    }

    fn rights_of(&self, at: usize) -> Option<&Rights> {
        self.limits.rights.get(&MachineId(at as u64 + 1))
    }

    pub(super) fn may_only_read(&self, at: usize) -> bool {
        self.rights_of(at).is_some_and(|rights| rights.read_only)
    }

    /// Enrols the machines after the first `full`.
    pub(super) fn admits_limited(&mut self, full: u64, machines: u64) -> Result<(), Violation> {
        if full == machines {
            return Ok(());
        }
        let dir = self.known.dirs.get(1).cloned().ok_or("no directory stays")?;
        for name in WITHIN {
            self.call(0, NOBODY, create(dir.clone(), label(name.as_bytes()), FileKind::Regular, None))?;
            self.complete()?;
            self.call(0, NOBODY, Call::SyncAll)?;
            self.complete()?;
            let made = self.history.now(&super::history::Key::Name(dir.clone(), label(name.as_bytes())));
            let Some(super::history::Value::Bound(file)) = made else {
                return Err(format!("{name} was not made"));
            };
            self.limits.files.push(file);
        }
        for id in (full + 1..=machines).map(MachineId) {
            let rights = match id.0 % 4 {
                0 => Rights { root: dir.clone(), ..Rights::FULL },
                1 => Rights { root: dir.clone(), read_only: true, squash: None },
                2 => Rights { root: dir.clone(), read_only: false, squash: Some(USER) },
                _ => Rights { squash: Some(USER), ..Rights::FULL },
            };
            self.limits.rights.insert(id, rights.clone());
            self.admits(id, rights)?;
            self.add_machine(id.0 as usize - 1);
        }
        Ok(())
    }

    fn admits(&mut self, id: MachineId, rights: Rights) -> Result<(), Violation> {
        let mut token = [1; 32];
        token[..8].copy_from_slice(&id.0.to_be_bytes());
        let rights = if self.weather.lie == Some(Mutation::ForgetsRights) { Rights::FULL } else { rights };
        self.limits.invited = false;
        // An input may be lost with the leader that it was proposed to.
        while self.limits.enrolled < id.0 {
            let input = match self.limits.invited {
                false => Input::Invite { token, rights: rights.clone(), at: 0, until: 1 },
                true => {
                    let name = format!("limited-{}", id.0);
                    Input::Enrol { token, name, key: [0; 32], at: 0, connection: 0 }
                }
            };
            let leader = if self.group.is_lone() { Some(0) } else { self.leader() };
            if let Some(leader) = leader {
                self.propose(leader, input);
            }
            let (until, invited) = (self.now + WAIT_MS, self.limits.invited);
            self.comes_to(|building| {
                let limits = &building.limits;
                limits.invited != invited || limits.enrolled >= id.0 || building.now > until
            })?;
        }
        Ok(())
    }

    /// Directories and files that stay, of those that the machine has.
    pub(super) fn stays_for(&self, at: usize) -> (Vec<FileId>, Vec<FileId>) {
        let (dirs, files) = (&self.known.dirs, &self.known.files);
        match self.rights_of(at) {
            None => (dirs.clone(), files.clone()),
            Some(rights) if !rights.are_of_subtree() => (dirs.clone(), Vec::new()),
            Some(rights) if rights.squash.is_some() => (vec![rights.root.clone()], Vec::new()),
            Some(rights) => (vec![rights.root.clone()], self.limits.files.clone()),
        }
    }

    /// The same for a program, which now and then asks for something else.
    pub(super) fn some_of(&mut self, at: usize) -> (Vec<FileId>, Vec<FileId>) {
        let (dirs, files) = (self.known.dirs.clone(), self.known.files.clone());
        match self.rights_of(at).cloned() {
            Some(rights) if rights.are_of_subtree() && !self.one_in(8) => {
                (vec![rights.root], self.limits.files.clone())
            }
            _ => (dirs, files),
        }
    }

    /// A request that the machine's client would not send.
    pub(super) fn asks_for(&mut self, at: usize, file: FileId) -> Option<ToServer> {
        self.rights_of(at)?;
        let field = if self.one_in(2) { Field::Content } else { Field::Attributes };
        let wants = vec![Lease::new(file.clone(), field, Kind::Read)];
        let operation = Operation::Stat(operation::Stat { file });
        Some(ToServer::Ask { number: QUESTION, operation, wants, mode: AskMode::Report })
    }
}
