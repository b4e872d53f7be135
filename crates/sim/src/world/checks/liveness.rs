//! Liveness after healing: without further faults every call is answered and every machine has a
//! session (ARCHITECTURE, invariant 16: calls wait only while something is away).

use crate::world::replica::Replica;
use crate::world::state::leader::Leader;
use crate::world::state::machine::Machine;
use crate::world::{Violation, World};

/// Time within which everything must come to rest without further faults, ms: longer than any
/// time-out.
const REST_MS_MAX: u64 = 600_000;

impl World {
    /// Runs until no call waits, no input is on its way to the server's disk, and every machine has
    /// a session.
    pub(in crate::world) fn comes_to_rest(&mut self) -> Result<(), Violation> {
        self.comes_to(|building| {
            let rests = |(at, machine): (usize, &Machine)| {
                machine.calls.is_empty() && machine.client.valid_for_ms(building.clock(at)) > 0
            };
            building.servers_are_idle() && building.machines.iter().enumerate().all(rests)
        })
    }

    /// Runs until `so` holds, for a bounded time.
    pub(in crate::world) fn comes_to(&mut self, so: impl Fn(&World) -> bool) -> Result<(), Violation> {
        let until = self.now + REST_MS_MAX;
        while !so(self) {
            if self.now > until {
                return Err(self.what_is_left());
            }
            self.step()?;
        }
        Ok(())
    }

    /// Whether nothing is on its way to a disk, and every server has all that is committed and the
    /// version that all know.
    fn servers_are_idle(&self) -> bool {
        if self.weather.shipped {
            return self.members_are_settled();
        }
        let idle = match self.group.is_lone() {
            true => self.group.is_up() && self.lone.is_idle(),
            false => self.group.is_idle() && self.check_members_settled().is_ok(),
        };
        idle && self.check_version().is_ok()
    }

    /// A description of all that is not at rest.
    fn what_is_left(&self) -> Violation {
        let calls = |machine: &Machine| -> Vec<String> {
            let calls = machine.calls.values().filter_map(|(number, _)| self.history.calls.get(*number));
            calls.map(|called| format!("{:?}", called.call)).collect()
        };
        let left: Vec<_> = self.machines.iter().map(|machine| (machine.id.0, calls(machine))).collect();
        let left: Vec<_> = left.into_iter().filter(|(_, calls)| !calls.is_empty()).collect();
        let invalid = self
            .machines
            .iter()
            .enumerate()
            .filter(|(at, machine)| machine.client.valid_for_ms(self.clock(*at)) == 0);
        let invalid: Vec<_> = invalid.map(|(_, m)| (m.id.0, &m.connection)).collect();
        let servers = self.check_members_settled().and_then(|()| self.check_version()).err();
        let servers = servers.unwrap_or_else(|| {
            let (lone, replicas) = (&self.lone, &self.group.replicas);
            let of = |replica: &Replica| {
                let leads = replica.leads.as_ref().map(Leader::is_idle);
                (replica.member, replica.up, replica.applied, replica.log.last().index, leads)
            };
            let replicas: Vec<_> = replicas.iter().filter(|it| it.serves).map(of).collect();
            format!("the lone one is idle: {}; up, applied, last, leads: {replicas:?}", lone.is_idle())
        });
        format!("does not come to rest: {left:?}, without a session {invalid:?}, {servers}")
    }
}
