//! The registry of machines. The root server keeps it, and each other server has a copy, by which
//! it admits machines (docs/internals/server.md, "The registry at several servers").
//!
//! The changes of the registry are numbered, and each row has the number of its last change. A
//! *feed* has all changes after one number and up to another. A server takes a feed only if it
//! continues its copy: by an older one, an expelled machine would become a member again. So feeds
//! may be lost, late and repeated.
//!
//! A machine's start is a change, too. The sessions of its earlier starts end at the root server
//! when it greets there, and at the others when they hear of it.

use crate::FoundError;
use crate::cluster::in_use::InUse;
use crate::io::{Input, Output};
use crate::rows::files::Files;
use crate::rows::machines::{Enrolment, MachineRow};
use crate::state::ClusterState;
use crate::transaction::Transaction;
use ident::ServerId;
use lease::SessionId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use wire::{EnrolError, ExpelError, InviteError, MachineId, RevokeError, Version};

/// The numbers of changes of the registry. A server other than the root has those of its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Changes {
    /// The last change.
    pub last: u64,
    /// The last change that may have removed a row. No row tells of it.
    pub removal: u64,
}

impl Changes {
    /// The next change has at least this number. Rows may have been removed.
    pub fn skip_to(&mut self, number: u64) {
        self.last = self.last.max(number);
        self.removal = self.last;
    }
}

/// A feed: the root server's registry of machines, as far as it changed after some number. The
/// result of [`crate::Directory::registry`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registry {
    since: u64,
    number: u64,
    pub(crate) version: Version,
    pub(crate) oldest: Version,
    pub(crate) machines: Vec<(MachineId, MachineRow)>,
}

impl Registry {
    /// The feed of what changed after `since`. If rows were removed since then, it has all rows
    /// that are left.
    pub(crate) fn of(cluster: &ClusterState, since: u64, files: &Files<'_>) -> Registry {
        let since = if since < cluster.changes.removal { 0 } else { since };
        let mut machines = files.machines();
        machines.retain(|(_, row)| row.changed > since);
        let InUse { version, oldest, .. } = cluster.in_use;
        Registry { since, number: cluster.changes.last, version, oldest, machines }
    }

    /// The number of the last change in it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The number of the last change before those in it.
    pub fn since(&self) -> u64 {
        self.since
    }

    /// Whether it has all machines. Those that it lacks are forgotten.
    pub fn is_whole(&self) -> bool {
        self.since == 0
    }

    /// The version of the root server.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The state of a new server that has these machines.
    pub(crate) fn as_state(&self) -> ClusterState {
        let (version, oldest) = (self.version, self.oldest);
        ClusterState {
            in_use: InUse { version, oldest, machines: BTreeMap::new(), oldest_at_root: oldest },
            enrolment: Enrolment { machines: self.machines.len() as u64, ..Enrolment::default() },
            changes: Changes { last: self.number, removal: self.number },
        }
    }
}

impl Transaction<'_> {
    /// Whether this is the root server, which keeps the registry.
    pub fn is_root(&self) -> bool {
        self.files.regions.server() == ServerId::ROOT
    }

    /// Refuses an input that changes the registry, unless this is the root server. There would be
    /// two registries, whatever has misled the host. Returns any other input.
    pub fn refuse_elsewhere(&mut self, input: Input) -> Option<Input> {
        if self.is_root() {
            return Some(input);
        }
        self.out.push(match input {
            Input::Invite { token, .. } => Output::Invited { token, result: Err(InviteError::NotTheRoot) },
            Input::Revoke { token } => Output::Revoked { token, result: Err(RevokeError::NotTheRoot) },
            Input::Enrol { connection, .. } => {
                Output::Enrolled { connection, result: Err(EnrolError::NotTheRoot) }
            }
            Input::Expel { machine } => Output::Expelled { machine, result: Err(ExpelError::NotTheRoot) },
            Input::Authorize { number, .. } => Output::Authorized { number, done: false },
            Input::Found { number, .. } => Output::Founded { number, result: Err(FoundError::NotTheRoot) },
            Input::Known { .. } | Input::Pin { .. } | Input::Moved { .. } | Input::Balance { .. } => {
                return None;
            }
            other => return Some(other),
        });
        None
    }

    /// Counts a change of the registry. Returns its number.
    pub fn count_change(&mut self) -> u64 {
        // The number of a copy is that of the feed that was taken last.
        if self.is_root() {
            self.state.cluster.changes.last += 1;
        }
        self.state.cluster.changes.last
    }

    /// Changes the row of a machine, or removes it.
    pub fn change_machine(&mut self, machine: MachineId, row: Option<MachineRow>) {
        let changed = self.count_change();
        if row.is_none() {
            self.state.cluster.changes.removal = changed;
        }
        self.write_machine(machine, row.map(|row| MachineRow { changed, ..row }));
    }

    /// Notes a start of a machine that is about to have a session.
    pub fn starts(&mut self, machine: MachineId, incarnation: u64) {
        // Another server hears of it by a feed.
        if !self.is_root() {
            return;
        }
        if let Some(row) = self.files.machine(machine).filter(|row| row.started < incarnation) {
            self.change_machine(machine, Some(MachineRow { started: incarnation, ..row }));
        }
    }

    /// Takes a feed, if it continues the copy of the registry that this server has.
    pub fn take_feed(&mut self, feed: Registry) {
        let has = self.state.cluster.changes.last;
        if self.is_root() || has < feed.since || feed.number <= has {
            return;
        }
        let mut changed: BTreeSet<MachineId> = feed.machines.iter().map(|(machine, _)| *machine).collect();
        if feed.is_whole() {
            let machines = self.files.machines();
            let forgotten = machines.into_iter().map(|(machine, _)| machine);
            let forgotten: Vec<_> = forgotten.filter(|machine| !changed.contains(machine)).collect();
            forgotten.iter().for_each(|machine| self.write_machine(*machine, None));
            changed.extend(forgotten);
            self.state.cluster.changes.removal = feed.number;
        }
        for (machine, row) in feed.machines {
            self.write_machine(machine, Some(row));
        }
        self.state.cluster.changes.last = feed.number;
        self.state.cluster.in_use.oldest_at_root = feed.oldest;
        for machine in changed {
            self.end_sessions_of(machine);
        }
        self.drop_last_version();
    }

    /// Ends the sessions of a machine that it must not have any more: those of its earlier starts,
    /// and all if it was expelled.
    pub fn end_sessions_of(&mut self, machine: MachineId) {
        let row = self.files.machine(machine).filter(|row| row.expelled.is_none());
        if row.is_none() {
            self.state.cluster.in_use.machines.remove(&machine);
        }
        let sessions = self.state.server.sessions.of_machine(machine);
        let ended = sessions.filter(|(_, its)| row.as_ref().is_none_or(|row| its.incarnation < row.started));
        let ended: Vec<SessionId> = ended.map(|(session, _)| session).collect();
        ended.into_iter().for_each(|session| self.fence(session, None));
    }

    /// Writes or removes the row of a machine, and counts the rows.
    fn write_machine(&mut self, machine: MachineId, row: Option<MachineRow>) {
        let before = self.files.machine(machine);
        let machines = &mut self.state.cluster.enrolment.machines;
        *machines += u64::from(row.is_some());
        *machines -= u64::from(before.is_some());
        if row != before {
            self.files.set_machine(machine, row.as_ref());
        }
    }
}
