//! The cluster's version, and which each machine speaks: replicated, since what replicas make of an
//! entry hangs on it.
//!
//! The version is raised by an entry, one at a time, once every member of the server group knows
//! the next; from that entry on there may be entries, rows and rules of it. Machines need not be
//! updated together: a session goes by the rules of what its machine speaks, the new version or the
//! last one. What every machine of the cluster has spoken once is the *oldest* from then on: the
//! last version's rules have no session left, no machine comes back to them, a program need not
//! know them any more, and the version can be raised again. So no more than two are ever in use.
//!
//! A cluster of [`Version::OLDEST`] has no row for all this, and no entry: to programs that know
//! nothing of it, it is as it always was.

use crate::corrupt::{Corrupt, Fault};
use crate::enrolment::FOUNDER;
use crate::files::Files;
use crate::io::{Output, Store};
use crate::keys::{self, Global};
use crate::record::exact;
use crate::transaction::{SERVER, State, Transaction};
use lease::SessionId;
use namespace::Rules;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::{MachineId, Refusal, Version, Versions};

/// The row of [`Global::Version`]. The version comes first: whoever does not know it reads no
/// further.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct InUse {
    /// The cluster's.
    pub version: Version,
    /// The oldest that a session may speak.
    pub oldest: Version,
    /// What each machine spoke last. Of those that were not heard of since the version was raised
    /// nothing is said: they may still speak the oldest.
    pub machines: BTreeMap<MachineId, Version>,
}

impl Default for InUse {
    fn default() -> InUse {
        InUse::of(Version::OLDEST)
    }
}

impl InUse {
    fn of(version: Version) -> InUse {
        InUse { version, oldest: version, machines: BTreeMap::new() }
    }

    /// Writes down that a new cluster is of `version`.
    pub fn found(store: &mut dyn Store, version: Version) -> InUse {
        let in_use = InUse::of(version);
        if let Some(row) = in_use.to_row() {
            store.put(&keys::global(Global::Version, &[]), row);
        }
        in_use
    }

    /// What a store says, to a program that knows these versions.
    pub fn read(store: &dyn Store, known: Versions) -> Result<InUse, Fault> {
        let key = keys::global(Global::Version, &[]);
        let Some(row) = store.get(&key) else { return Ok(InUse::default()) };
        let corrupt = || Corrupt::at(&key, "version");
        let (version, _) = postcard::take_from_bytes(&row).map_err(|_| corrupt())?;
        known_to(known, version)?;
        let in_use: InUse = exact(&row).ok_or_else(corrupt)?;
        known_to(known, in_use.oldest)?;
        Ok(in_use)
    }

    fn to_row(&self) -> Option<Vec<u8>> {
        (*self != InUse::default()).then(|| postcard::to_allocvec(self).unwrap_or_default())
    }

    /// Whether a store says the same.
    pub fn check(&self, store: &dyn Store) -> Result<(), Corrupt> {
        let key = keys::global(Global::Version, &[]);
        if store.get(&key) == self.to_row() { Ok(()) } else { Err(Corrupt::at(&key, "version")) }
    }

    /// What a machine's sessions speak.
    pub fn spoken_by(&self, machine: MachineId) -> Version {
        self.machines.get(&machine).copied().unwrap_or(self.oldest).min(self.version)
    }
}

/// An error if a program does not know `version`.
pub(crate) fn known_to(known: Versions, version: Version) -> Result<(), Fault> {
    if known.know(version) { Ok(()) } else { Err(Fault::Version { version, known }) }
}

impl State {
    /// The version that a session speaks; the server itself, the cluster's.
    pub fn spoken_in(&self, session: SessionId) -> Version {
        let machine = self.sessions.all.get(&session).filter(|_| session != SERVER);
        machine.map_or(self.in_use.version, |known| self.in_use.spoken_by(known.machine))
    }

    /// The rules that a session goes by.
    pub fn rules_of(&self, session: SessionId) -> Rules {
        self.spoken_in(session).rules()
    }

    /// Whether a machine that was not heard of since the version was raised may come back and speak
    /// an older one. The founder's number is never given up, whatever became of the machine.
    fn may_speak_older(&self, machine: MachineId) -> bool {
        machine != FOUNDER || self.sessions.all.values().any(|session| session.machine == machine)
    }
}

impl Transaction<'_> {
    /// The version is raised, unless it was meanwhile, or some machines speak the last one yet.
    pub fn raise(&mut self, to: Version) {
        let in_use = &mut self.state.in_use;
        if to != in_use.version.next() || in_use.oldest != in_use.version {
            return;
        }
        in_use.version = to;
        // Whoever has not been heard of speaks what was the oldest until now.
        in_use.machines.clear();
        self.write_versions();
        self.out.push(Output::Raised { version: to });
    }

    /// A machine is about to open a session that speaks `version`.
    pub fn speaks(&mut self, machine: MachineId, version: Version) {
        let in_use = &mut self.state.in_use;
        let changes = in_use.version > Version::OLDEST && in_use.machines.get(&machine) != Some(&version);
        if changes && self.files.admit(machine).is_ok() {
            in_use.machines.insert(machine, version);
            self.write_versions();
        }
    }

    /// A machine belongs to the cluster no more: it keeps nothing from being dropped.
    pub fn speaks_no_more(&mut self, machine: MachineId) {
        if self.state.in_use.version > Version::OLDEST {
            self.state.in_use.machines.remove(&machine);
            self.write_versions();
        }
    }

    /// Whether a machine's sessions may be what they speak.
    pub fn may_speak(&self, machine: MachineId) -> Result<(), Refusal> {
        let (speaks, oldest) = (self.state.in_use.spoken_by(machine), self.state.in_use.oldest);
        if speaks < oldest { Err(Refusal::TooOld { speaks, oldest }) } else { Ok(()) }
    }

    fn write_versions(&mut self) {
        if self.state.in_use.oldest < self.state.in_use.version && older(self.state, &self.files).is_empty() {
            self.state.in_use.oldest = self.state.in_use.version;
        }
        let row = self.state.in_use.to_row();
        self.files.set_global(Global::Version, &[], row);
    }
}

/// The machines that may still speak an older version than the cluster's.
pub(crate) fn older(state: &State, files: &Files<'_>) -> Vec<(MachineId, String)> {
    let in_use = &state.in_use;
    if in_use.oldest == in_use.version {
        return Vec::new();
    }
    let belong = files.machines().into_iter().filter(|(_, row)| row.expelled.is_none());
    let may = |machine: MachineId| match in_use.machines.get(&machine) {
        Some(speaks) => *speaks < in_use.version,
        None => state.may_speak_older(machine),
    };
    belong.filter(|(machine, _)| may(*machine)).map(|(machine, row)| (machine, row.name)).collect()
}
