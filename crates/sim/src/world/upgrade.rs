//! A rolling upgrade: servers and machines begin anew, one after the other and in any order, with a
//! program that knows the next version, which has nothing new in it.

use super::events::Event;
use super::{Mutation, Violation, World};
use directory::Input;

/// Time that a server is away for the upgrade, ms at most.
const PAUSE_MS: u64 = 5_000;

impl World {
    pub(super) fn begin_upgrade(&mut self) {
        if self.weather.upgrade_ms > 0 {
            self.plan_upgrade();
        }
    }

    fn plan_upgrade(&mut self) {
        let wait = 1 + self.below(2 * self.weather.upgrade_ms);
        self.later(wait, Event::Upgrades);
    }

    /// A server or machine with the old program gets the new one.
    pub(super) fn upgrades(&mut self) -> Result<(), Violation> {
        // Once all faults have ended, nothing changes any more.
        if self.healed {
            return Ok(());
        }
        let newest = self.weather.newest();
        let replicas = self.group.replicas.iter().enumerate();
        let servers: Vec<usize> = replicas
            .filter(|(_, replica)| replica.serves && replica.knows != newest)
            .map(|(at, _)| at)
            .collect();
        let machines = self.machines.iter().enumerate();
        let machines: Vec<usize> =
            machines.filter(|(_, machine)| machine.speaks < newest.newest).map(|(at, _)| at).collect();
        let some = self.below((servers.len() + machines.len()) as u64) as usize;
        if let Some(at) = servers.get(some).copied() {
            self.notes(|| format!("server {at} gets the new program"));
            self.group.replicas[at].knows = newest;
            let pause = 1 + self.below(PAUSE_MS);
            if self.group.is_lone() { self.lone_crashes(pause) } else { self.replica_crashes(at, pause) }
        } else if let Some(at) = machines.get(some - servers.len()).copied() {
            self.notes(|| format!("machine {at} gets the new program"));
            self.machines[at].speaks = newest.newest;
            self.crashes(at)?;
        } else {
            return Ok(());
        }
        self.plan_upgrade();
        Ok(())
    }

    /// The leading server raises the version once all servers are up and know the next.
    pub(super) fn raises_version(&mut self, at: usize) {
        let replica = &self.group.replicas[at];
        let to = replica.directory.version().next();
        let early = self.weather.lie == Some(Mutation::RaisesEarly) && replica.knows.know(to);
        let mut serving = self.group.replicas.iter().filter(|replica| replica.serves);
        if early || serving.all(|replica| replica.up && replica.knows.know(to)) {
            self.propose(at, Input::Raise { to });
        }
    }

    /// Checks the version at the end: it is the newest that all servers know. An earlier one is
    /// right only where machines still speak an older version and so keep it from being raised.
    pub(super) fn check_version(&self) -> Result<(), Violation> {
        let serving = || self.group.replicas.iter().enumerate().filter(|(_, replica)| replica.serves);
        let known = serving().map(|(_, replica)| replica.knows.newest).min();
        for (at, replica) in serving() {
            let version = replica.directory.version();
            let is_kept = !replica.directory.older_machines(&replica.store).is_empty();
            if Some(version) > known || Some(version) < known && !is_kept {
                return Err(format!(
                    "server {at} is at version {version} in the end, and all know {known:?}"
                ));
            }
        }
        Ok(())
    }
}
