//! The servers: one message after the other, what goes between them, and regions that move.

use super::counts::Between;
use super::events::{Event, Sender};
use super::{Campus, Leaving, Serving};
use crate::host::Violation;
use directory::{DelegateError, Exchange, Input, Output, Standing};
use ident::{FileId, ServerId};
use lease::{Kind, SessionId};
use wire::{JointStep, LogEntry, ToClient, ToServer};

/// A hand-over ends within this time, µs.
const HAND_OVER_US_MAX: u64 = 600_000_000;

impl Campus {
    /// A message arrives, and waits for its turn.
    pub(super) fn arrives(&mut self, server: usize, from: Sender, input: Input) {
        let now = self.events.now();
        let service_us = self.settings.service_us;
        let serving = &mut self.servers[server];
        let done = serving.busy_until.max(now) + service_us;
        serving.busy_until = done;
        self.counts.handled(server, service_us, done - now);
        self.events.at(done, Event::Serves { server, from, input });
    }

    /// A message has had its turn.
    pub(super) fn serves(&mut self, server: usize, from: Sender, input: Input) -> Result<(), Violation> {
        // Nothing of an earlier connection of this machine comes after a new one.
        let is_late =
            |(at, connection): (usize, u64)| self.machines[at].wires[server].connections != connection;
        if from.is_some_and(is_late) {
            return Ok(());
        }
        if let Input::Message { session, message } = &input {
            if let ToServer::Extents { .. } = message {
                let serving = &self.servers[server].server;
                if let Some(reply) = serving.directory.query(*session, message, &serving.store) {
                    self.sends_to_client(server, *session, reply)?;
                }
                return Ok(());
            }
            self.notes_made(message);
        }
        // A request that is granted while it is handled has waited for no recall.
        self.is_asked = matches!(&input, Input::Message { message: ToServer::Ask { .. }, .. });
        let served = self.serve(server, input);
        self.is_asked = false;
        served
    }

    /// Notes the files that a message says were made.
    fn notes_made(&mut self, message: &ToServer) {
        let ToServer::Log { entries, .. } = message else { return };
        for entry in entries {
            if let LogEntry::Update { operation: namespace::Operation::Create(create), .. } = entry {
                self.moves.made(&create.new.file, self.events.now());
            }
        }
    }

    /// A server handles an input. Messages that rest on its log wait for the disk, as they do in
    /// the host of a server without a group (`raft::machine`).
    pub(super) fn serve(&mut self, server: usize, input: Input) -> Result<(), Violation> {
        let now = self.now();
        let before = self.servers[server].server.flushes;
        let outputs = self.servers[server]
            .server
            .handle(now, input)
            .map_err(|what| format!("server {server}: {what}"))?;
        if self.servers[server].server.flushes > before {
            self.flushes(server);
        }
        let from = ServerId(server as u16);
        for output in outputs {
            match output {
                Output::HandOver { to, message } => {
                    self.counts.between(Between::HandOver);
                    self.sends_between(server, to, Input::HandOver { from, message });
                }
                Output::Joint { to, message } => {
                    self.counts.between(Between::Joint);
                    let changes =
                        matches!(&message.step, JointStep::Settle { effects, .. } if !effects.is_empty());
                    self.counts.joint(message.op, changes);
                    self.sends_between(server, to, Input::Joint { from, message });
                }
                Output::PathLease { to, message } => {
                    self.counts.between(Between::PathLease);
                    self.sends_between(server, to, Input::PathLease { from, message });
                }
                Output::Delegated { region, result } => self.delegated(server, region, result)?,
                Output::Opened { machine, session, connection, .. } => {
                    let at = machine.0 as usize - 1;
                    if self.machines[at].wires[server].connection.open(connection, session) {
                        self.servers[server].sessions.insert(session, at);
                    }
                }
                Output::Send { session, message } => self.sends_to_client(server, session, message)?,
                Output::Shares(work) => self.serve(server, Input::SharesSettled(work))?,
                _ => {}
            }
        }
        if self.servers[server].server.again && !self.servers[server].goes_on {
            self.servers[server].goes_on = true;
            self.events.after(self.settings.service_us.max(1), Event::GoesOn { server });
        }
        Ok(())
    }

    /// The server's log is to become durable. All that is there when a flush begins is in that
    /// flush, so one that waits for the disk is enough.
    fn flushes(&mut self, server: usize) {
        let (now, disk_us) = (self.events.now(), self.settings.disk_us);
        let (from, until) = &mut self.servers[server].flush;
        if *from < now || disk_us == 0 {
            *from = now.max(*until);
            *until = *from + disk_us;
            self.counts.disk_us[server] += disk_us;
        }
        self.counts.longest_us = self.counts.longest_us.max(*until - now);
    }

    fn sends_between(&mut self, server: usize, to: ServerId, input: Input) {
        // Every word of a server to another rests on its log.
        let leaves = self.servers[server].flush.1.max(self.events.now());
        let (arrives, to) = (leaves + self.latency(), usize::from(to.0));
        let last = self.between.entry((server, to)).or_default();
        *last = (*last).max(arrives);
        let time = *last;
        self.events.at(time, Event::Arrives { server: to, from: None, input });
    }

    fn sends_to_client(
        &mut self,
        server: usize,
        session: SessionId,
        message: ToClient,
    ) -> Result<(), Violation> {
        if matches!(message, ToClient::Fenced) {
            return Err(format!("server {server} fences {session:?}"));
        }
        let Some(at) = self.servers[server].sessions.get(&session).copied() else { return Ok(()) };
        if !self.machines[at].wires[server].connection.is_of(session) {
            return Ok(());
        }
        self.counts.goes_to_client(&message);
        if let ToClient::Granted { grants, .. } = &message {
            self.notes_grants(server, at, grants);
        }
        // A message that rests on the log waits for the disk. None overtakes another on its wire.
        let leaves = match (Output::Send { session, message: message.clone() }).rests_on_the_log() {
            true => self.servers[server].flush.1.max(self.events.now()),
            false => self.events.now(),
        };
        let arrives = leaves + self.latency();
        let wire = &mut self.machines[at].wires[server];
        wire.to_client_at = wire.to_client_at.max(arrives);
        let (time, connection) = (wire.to_client_at, wire.connections);
        self.events.at(time, Event::Reaches { machine: at, server, connection, message });
        Ok(())
    }

    /// Counts the leases of a grant that one lease for each file would have had recalled.
    fn notes_grants(&mut self, server: usize, at: usize, grants: &[wire::FileGrant]) {
        let (now, machine) = (self.now(), self.machines[at].id);
        let serving = &self.servers[server].server;
        for grant in grants {
            let writes = grant.whole || grant.fields.iter().any(|(_, kind)| *kind != Kind::Read);
            let all = serving.directory.leases(now, &serving.store, &grant.file);
            let conflicts = all.iter().any(|held| match held.standing {
                Standing::Holds { kind, .. } => held.machine != machine && (writes || kind != Kind::Read),
                _ => false,
            });
            self.counts.granted(grant, conflicts && self.is_asked);
        }
    }

    /// The server is to hand the region over.
    pub fn delegate(&mut self, server: usize, region: FileId, to: usize) -> Result<(), Violation> {
        self.hands_over(server, Exchange { gives: region, takes: None }, to)
    }

    /// The server is to hand a region over, and then to have one for that.
    fn hands_over(&mut self, server: usize, exchange: Exchange, to: usize) -> Result<(), Violation> {
        let (since, region) = (self.events.now(), exchange.gives.clone());
        self.servers[server].leaving = Some(Leaving { exchange, to, since });
        self.serve(server, Input::Delegate { region, to: ServerId(to as u16) })
    }

    /// Whether the server manages the file.
    pub fn manages(&self, server: usize, file: &FileId) -> bool {
        self.servers[server].server.directory.manages(file)
    }

    fn delegated(
        &mut self,
        server: usize,
        region: FileId,
        result: Result<(), DelegateError>,
    ) -> Result<(), Violation> {
        let now = self.events.now();
        let leaving = self.servers[server].leaving.take();
        if result.is_err() {
            self.counts.stayed += 1;
            self.moves.stayed(region, now);
            return Ok(());
        }
        self.counts.delegations += 1;
        self.moves.moved(region.clone(), now);
        let Some(Leaving { exchange, to, since }) = leaving else { return Ok(()) };
        self.servers[to].coming.push((region, since));
        match exchange.takes {
            Some(takes) if self.servers[to].leaving.is_none() => self.delegate(to, takes, server),
            _ => Ok(()),
        }
    }

    /// A hand-over that the server has begun, or that it is to end, has not taken too long.
    pub(super) fn hand_overs_end(&mut self, server: usize) -> Result<(), Violation> {
        let mut coming = std::mem::take(&mut self.servers[server].coming);
        coming.retain(|(region, _)| self.server_of(region).is_none());
        let serving = &mut self.servers[server];
        serving.coming = coming;
        let leaving = serving.leaving.iter().map(|it| (&it.exchange.gives, &it.since));
        let mut all = leaving.chain(serving.coming.iter().map(|(region, since)| (region, since)));
        match all.find(|(_, since)| self.events.now() - *since > HAND_OVER_US_MAX) {
            Some((region, _)) => Err(format!("the hand-over of {region} at server {server} does not end")),
            None => Ok(()),
        }
    }

    /// A server compares its load with that of another one, and hands regions over if the rule says
    /// so.
    pub(super) fn exchange(&mut self, server: usize) -> Result<(), Violation> {
        let Some(balance) = self.settings.balance else { return Ok(()) };
        self.events.after(balance.every_s * 1_000_000, Event::Exchange { server });
        let count = self.servers.len() as u64;
        if count < 2 || self.servers[server].leaving.is_some() {
            return Ok(());
        }
        let other = (server + 1 + self.below(count - 1) as usize) % self.servers.len();
        let now = self.events.now();
        let all = self.active_files();
        let of = |server: usize| self.active_at(server, &all);
        let may_go = |region: &FileId, from: usize, to: usize| {
            let Serving { server, leaving, .. } = &self.servers[from];
            let rests = !self.moves.may_go(region, now, &balance);
            let may = || server.directory.may_delegate(&server.store, region, ServerId(to as u16));
            leaving.is_none() && !rests && may().is_ok()
        };
        let may_leave = |region: &FileId| may_go(region, server, other);
        let may_come = |region: &FileId| may_go(region, other, server);
        match balance.rule.chooses(&of(server), &of(other), may_leave, may_come) {
            Ok(exchange) => self.hands_over(server, exchange, other),
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campus::CampusSettings;

    /// Without this, a run without a violation would not say that hand-overs end.
    #[test]
    fn a_hand_over_that_does_not_end_is_found() {
        let mut campus = Campus::new(1, CampusSettings::at_ease(1, 2)).unwrap();
        let root = FileId::root;
        campus.begins(0, move |context| async move {
            context.mkdir(&root(), "dir").await?;
            context.sync_all().await
        });
        campus.run_to_end(10_000).unwrap();
        let dir = root().child(2);
        assert!(
            campus.servers[0]
                .server
                .directory
                .may_delegate(&campus.servers[0].server.store, &dir, ServerId(1))
                .is_ok()
        );
        campus.delegate(0, dir.clone(), 1).unwrap();
        campus.rests_ms(20_000).unwrap();
        assert!(campus.manages(1, &dir) && campus.servers[0].leaving.is_none());
        assert!(campus.servers[1].coming.is_empty(), "it has come");
        // As if the server had not told the end.
        let exchange = Exchange { gives: dir, takes: None };
        campus.servers[0].leaving = Some(Leaving { exchange, to: 1, since: campus.events.now() });
        campus.rests_ms(599_000).unwrap();
        let found = campus.rests_ms(2_000).unwrap_err();
        assert!(found.contains("does not end"), "{found}");
    }
}
