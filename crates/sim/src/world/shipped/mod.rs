//! Servers that run the shipped code: `raft`, with openraft, the log and the rows, each on a disk
//! of its own ([`disk`]). Wires connect them ([`wires`]). All run in one thread and in simulated
//! time. The entries that they agree on are compared with the simulation's own results
//! ([`oracle`]).
//!
//! A server here is a machine. As a *member* of the group it gets another number each time that it
//! has lost its disk.

mod agreement;
mod disk;
mod members;
mod oracle;
mod processes;
pub(super) mod servers;
mod wires;

use super::state::host::invitations;
use super::state::link::{Packet, Way};
use super::{Violation, World};
use crate::model::feed;
use directory::{Input, MemoryStore};
use lease::SessionId;
use raft::FOUNDER;
use servers::ServerEvent;
use std::time::Duration;
use wire::{Space, ToServer};

/// The longest time between looks at the servers, ms. A look comes before any log has lost entries
/// to a checkpoint.
const LOOK_MS: u64 = 10;

impl World {
    /// The first server founds the group, the machines are enrolled in the cluster, and the other
    /// servers become members.
    pub(super) fn shipped_begin(&mut self, machines: u64) -> Result<(), Violation> {
        for at in 0..self.shipped.servers.len() {
            let wires: Vec<(u64, bool)> =
                (0..self.shipped.servers.len()).map(|_| ([1, 2, 5][self.below(3) as usize], false)).collect();
            self.shipped.net.0.lock().wires[at] = wires;
        }
        self.shipped.servers[0].member = FOUNDER;
        self.shipped.numbered = FOUNDER;
        self.member_starts(0);
        self.comes_to(|building| building.leads(0))?;
        for [invite, enrol] in invitations(machines) {
            self.propose(0, invite);
            self.propose(0, enrol);
        }
        for at in 1..self.weather.servers as usize {
            self.member_is_new(at);
        }
        self.comes_to(World::members_are_settled)
    }

    /// Runs the servers until the next event, or until one of them reports something. Returns false
    /// if no report came.
    pub(super) fn servers_run(&mut self) -> Result<bool, Violation> {
        let next = self.events.time().unwrap_or(u64::MAX).min(self.now + LOOK_MS).max(self.now);
        self.tell_wires();
        let shipped = &mut self.shipped;
        let (until, told) = (shipped.began + Duration::from_millis(next), shipped.told.clone());
        let (began, time) = (shipped.began, &shipped.time);
        let now = time.block_on(async move {
            tokio::select! {
                biased;
                () = told.wake.notified() => {}
                () = tokio::time::sleep_until(until) => {}
            }
            began.elapsed()
        });
        self.now = self.now.max(now.as_millis() as u64);
        self.looks_at_entries()?;
        let mut something = false;
        loop {
            let told = self.shipped.told.told.lock().pop_front();
            let Some((at, start, told)) = told else { break };
            something = true;
            feed(&mut self.happened.trace, &[self.now.to_be_bytes(), (at as u64).to_be_bytes()].concat());
            if self.shipped.servers[at].process == start {
                self.hears_server(at, told)?;
            }
        }
        for at in 0..self.shipped.servers.len() {
            something |= self.looks_at_server(at)?;
        }
        Ok(something || self.now < self.events.time().unwrap_or(u64::MAX))
    }

    /// Sets the wires as the weather and the faults have them.
    fn tell_wires(&mut self) {
        let servers = self.shipped.servers.len();
        let loses = if self.healed { 0 } else { self.weather.loses * 20 };
        let mut net = self.shipped.net.0.lock();
        net.loses = loses;
        for from in 0..servers {
            for to in 0..servers {
                net.wires[from][to].1 = self.group.wire(from, to).cut > 0;
            }
        }
    }

    fn hears_server(&mut self, at: usize, told: ServerEvent) -> Result<(), Violation> {
        match told {
            ServerEvent::Started(_) if self.shipped.servers[at].damaged => {
                Err(format!("server {at} has started with a log that has rotted"))
            }
            ServerEvent::Started(group) => {
                self.notes(|| format!("server {at} has started: {:?}", group.standing()));
                let leads = group.leads();
                self.shipped.servers[at].group = Some(group);
                self.leads_or_not(at, leads);
                Ok(())
            }
            ServerEvent::Event(raft::Event::Ended(why)) if self.shipped.servers[at].was_put_back => {
                self.notes(|| format!("server {at} has forgotten: {why}"));
                self.happened.refused += 1;
                let server = &mut self.shipped.servers[at];
                (server.damaged, server.forgot) = (true, false);
                server.life.end();
                Ok(())
            }
            ServerEvent::Refused(why) if self.shipped.servers[at].forgot => {
                self.shipped.servers[at].forgot = false;
                self.shipped.servers[at].damaged = true;
                self.hears_server(at, ServerEvent::Refused(why))
            }
            ServerEvent::Refused(why) if self.shipped.servers[at].damaged => {
                self.notes(|| format!("server {at} refuses: {why}"));
                self.happened.refused += 1;
                self.shipped.servers[at].life.end();
                Ok(())
            }
            ServerEvent::Refused(_) if self.shipped.servers[at].life.is_over() => Ok(()),
            // A server that begins without state needs room.
            ServerEvent::Refused(_) if self.shipped.servers[at].lacks_room_to_begin() => {
                self.shipped.servers[at].life.end();
                Ok(())
            }
            ServerEvent::Refused(why) => Err(format!("server {at} does not start: {why}")),
            ServerEvent::Event(raft::Event::Outputs(outputs)) => {
                self.notes(|| format!("server {at} tells {outputs:?}"));
                outputs.into_iter().try_for_each(|output| self.server_puts_out(at, output))
            }
            ServerEvent::Event(raft::Event::Applied(_)) => Ok(()),
            ServerEvent::Event(raft::Event::Ended(why)) => {
                Err(format!("server {at} says that it has lost what it had: {why}"))
            }
            ServerEvent::Changed(which) => {
                self.shipped.changing[which as usize] = None;
                Ok(())
            }
            ServerEvent::Doubts { at: machine, connection } => {
                self.turns_away(at, machine, connection);
                Ok(())
            }
            ServerEvent::Event(raft::Event::Replaced) => {
                self.happened.snapshots += 1;
                Ok(())
            }
            ServerEvent::Event(raft::Event::Standing) => Ok(()),
            ServerEvent::Leads(leads) => {
                self.leads_or_not(at, leads);
                Ok(())
            }
            ServerEvent::Answer { at: machine, connection, answer, committed, applied } => {
                if applied < committed {
                    return Err(format!(
                        "server {at} answers from what was there after {applied} entries, though {committed} were committed when it was asked"
                    ));
                }
                self.send(machine, Way::Down, connection, Packet::Tells(answer));
                Ok(())
            }
        }
    }

    /// The server may have begun or ceased to lead.
    fn leads_or_not(&mut self, at: usize, leads: bool) {
        let led = std::mem::replace(&mut self.shipped.servers[at].led, leads);
        if leads && !led {
            self.happened.elections += 1;
            self.notes(|| format!("server {at} leads"));
            self.propose(
                at,
                Input::Space(Space { total: 1 << 40, free: 1 << 40, files: 0, lends: 0, elsewhere: 0 }),
            );
        } else if led && !leads {
            self.notes(|| format!("server {at} does not lead any more"));
            self.group.replicas[at].start += 1;
            self.turns_all_away(at);
        }
    }

    /// Looks at a server, which may have ended.
    fn looks_at_server(&mut self, at: usize) -> Result<bool, Violation> {
        let others: Vec<u64> = (0..self.shipped.servers.len())
            .filter(|other| *other != at && self.group.replicas[*other].serves)
            .map(|other| self.shipped.servers[other].member)
            .collect();
        let server = &mut self.shipped.servers[at];
        // Once all others have confirmed its present start, none has a reason left to refuse it.
        server.was_put_back &= !server
            .group
            .as_ref()
            .is_some_and(|group| others.iter().all(|member| group.is_confirmed_by(*member)));
        // The server has forgotten nothing, or no other server has noticed.
        server.forgot &= !server.group.as_ref().is_some_and(|group| group.is_trusted());
        server.moved &= server.forgot;
        let server = &self.shipped.servers[at];
        if !self.group.replicas[at].up || !server.life.is_over() {
            return Ok(false);
        }
        if let Some(why) = server.life.why_over().filter(|_| !server.damaged) {
            return Err(format!("server {at} has stopped itself: {why}"));
        }
        self.member_ended(at);
        Ok(true)
    }
}

impl World {
    /// Whether this server leads, as far as it knows.
    pub(super) fn member_leads(&self, at: usize) -> bool {
        self.shipped.servers[at].led
    }

    /// The server that it takes for the leader.
    pub(super) fn member_follows(&self, at: usize) -> Option<usize> {
        let servers = &self.shipped.servers;
        let leader = servers[at].group.as_ref()?.standing().leader?;
        servers.iter().position(|server| server.member == leader)
    }

    /// Puts an input into its log, if it leads.
    pub(super) fn member_proposes(&mut self, at: usize, input: Input) {
        let server = &self.shipped.servers[at];
        if let Some(group) = server.group.as_ref().filter(|_| !server.life.is_over()) {
            group.propose(input);
        }
    }

    /// A machine asks a question that changes nothing.
    pub(super) fn member_is_asked(
        &mut self,
        server: usize,
        at: usize,
        connection: u64,
        session: SessionId,
        message: ToServer,
    ) {
        let (committed, start, told) =
            (self.shipped.committed(), self.shipped.servers[server].process, self.shipped.told.clone());
        let it = &self.shipped.servers[server];
        let Some(group) = it.group.clone() else { return };
        let _in = self.shipped.time.enter();
        it.life.spawn(async move {
            if !group.confirm().await {
                return told.put(server, start, ServerEvent::Doubts { at, connection });
            }
            let applied = group.applied().map_or(0, |index| index + 1);
            if let Some(answer) = group.answer(session, &message) {
                told.put(server, start, ServerEvent::Answer { at, connection, answer, committed, applied });
            }
        });
    }

    /// Checks at the end that all servers have the same rows, which are the simulation's.
    pub(super) fn check_members(&mut self) -> Result<(), Violation> {
        let oracle = &mut self.shipped.oracle;
        oracle.directory.checkpoint(&mut oracle.store);
        for (at, server) in self.shipped.servers.iter().enumerate() {
            let Some(group) = &server.group else { continue };
            let rows = group.query(|directory, rows| {
                let rows = rows.scan(&[], &[0xff; 64], usize::MAX);
                let mut store = MemoryStore { rows: rows.into_iter().collect() };
                directory.clone().checkpoint(&mut store);
                store
            });
            let reached = group.applied().map_or(0, |index| index as usize + 1);
            if reached == oracle.entries.len() && rows != oracle.store {
                return Err(format!("server {at} has other rows at the end than its log comes to"));
            }
        }
        Ok(())
    }
}
