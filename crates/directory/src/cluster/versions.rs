//! The cluster's version, and the version that each machine speaks. Both are replicated, since the
//! effect of an entry depends on them.
//!
//! An entry raises the version by one, once every member of the server group knows the next. From
//! that entry on there may be entries and rows of the new version. Machines need not be updated
//! together: a session goes by the version that its machine speaks, the new one or the last one.
//! Once every machine of the cluster has spoken a version, that version is the *oldest*. Then the
//! last version has no session left, and no machine comes back to it. A program need not know it
//! any more, and the version can be raised again. So no more than two are ever in use.
//!
//! Not every machine comes to every server, so a server other than the root drops the last version
//! once the root server has, and no session here speaks it.

use crate::cluster::in_use::InUse;
use crate::io::Output;
use crate::rows::files::Files;
use crate::state::DirectoryState;
use crate::transaction::Transaction;
use lease::SessionId;
use wire::{FOUNDER, MachineId, Refusal, Version};

impl DirectoryState {
    /// The version that a session speaks.
    pub fn spoken_in(&self, session: SessionId) -> Version {
        let InUse { version, oldest, machines, .. } = &self.cluster.in_use;
        let machine = self.server.sessions.all.get(&session).map(|known| known.machine);
        machine.and_then(|machine| machines.get(&machine)).unwrap_or(oldest).min(version).to_owned()
    }

    /// Whether a machine may still speak an older version than the cluster's, or come back with it.
    /// The founder's number is never given up, whatever became of the machine.
    fn may_speak_older(&self, machine: MachineId) -> bool {
        let in_use = &self.cluster.in_use;
        let spoke = in_use.machines.get(&machine);
        let has_session = || self.server.sessions.of_machine(machine).next().is_some();
        let comes_back = || in_use.oldest_at_root < in_use.version && (spoke.is_some() || machine != FOUNDER);
        spoke.is_none_or(|spoke| *spoke < in_use.version) && (comes_back() || has_session())
    }
}

impl Transaction<'_> {
    /// Raises the version, unless it was raised meanwhile, or some machines still speak the last
    /// one.
    pub fn raise(&mut self, to: Version) {
        self.drop_last_version();
        let in_use = &mut self.state.cluster.in_use;
        if to != in_use.version.next() || in_use.are_two() {
            return;
        }
        in_use.version = to;
        self.count_change();
        self.out.push(Output::Raised { version: to });
        self.drop_last_version();
    }

    /// Whether a session may speak `version`.
    pub fn may_speak(&self, version: Version) -> Result<(), Refusal> {
        let InUse { oldest, oldest_at_root, .. } = self.state.cluster.in_use;
        let oldest = oldest.max(oldest_at_root);
        if version < oldest { Err(Refusal::TooOld { speaks: version, oldest }) } else { Ok(()) }
    }

    /// Notes that a machine is about to have a session that speaks `version`.
    pub fn speaks(&mut self, machine: MachineId, version: Version) {
        if self.state.cluster.in_use.are_two() {
            self.state.cluster.in_use.machines.insert(machine, version);
            self.drop_last_version();
        }
    }

    /// Forgets a machine that has left the cluster: it no longer keeps a version from being
    /// dropped.
    pub fn speaks_no_more(&mut self, machine: MachineId) {
        self.state.cluster.in_use.machines.remove(&machine);
        self.drop_last_version();
    }

    /// Drops the last version if no machine may speak it any more.
    pub fn drop_last_version(&mut self) {
        if self.state.cluster.in_use.are_two() && older(self.state, &self.files).is_empty() {
            self.state.cluster.in_use.drop_last();
            self.count_change();
        }
    }
}

/// The machines that may still speak an older version than the cluster's.
pub(crate) fn older(state: &DirectoryState, files: &Files<'_>) -> Vec<(MachineId, String)> {
    if !state.cluster.in_use.are_two() {
        return Vec::new();
    }
    let belong = files.machines().into_iter().filter(|(_, row)| row.expelled.is_none());
    let older = belong.filter(|(machine, _)| state.may_speak_older(*machine));
    older.map(|(machine, row)| (machine, row.name)).collect()
}
