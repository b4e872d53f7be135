//! The servers: one message after the other, what goes between them, and regions that move.

use super::counts::Between;
use super::events::{Event, Sender};
use super::{Campus, CampusSettings, balance};
use crate::host::Violation;
use directory::{DelegateError, Input, Output, Standing};
use ident::{FileId, ServerId};
use lease::{Kind, SessionId};
use wire::{JointStep, LogEntry, ToClient, ToServer};

impl Campus {
    /// A message arrives, and waits for its turn.
    pub(super) fn arrives(&mut self, server: usize, from: Sender, input: Input) {
        let now = self.events.now();
        let CampusSettings { service_us, disk_us, .. } = self.settings;
        let serving = &mut self.servers[server];
        let mut done = serving.busy_until.max(now) + service_us;
        serving.busy_until = done;
        // A renewal rests on no flush, and what servers say to each other does not wait for
        // machines. Messages of machines keep their order.
        if from.is_some() {
            let writes = matches!(&input, Input::Message { message, .. } if *message != ToServer::Renew);
            serving.disk_until = serving.disk_until.max(done) + if writes { disk_us } else { 0 };
            done = serving.disk_until;
        }
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
            self.notes_files(message);
        }
        // A request that is granted while it is handled has waited for no recall.
        self.is_asked = matches!(&input, Input::Message { message: ToServer::Ask { .. }, .. });
        let served = self.serve(server, input);
        self.is_asked = false;
        served
    }

    /// The files of a message were in use now.
    fn notes_files(&mut self, message: &ToServer) {
        let now = self.events.now();
        let activity = &mut self.activity;
        match message {
            ToServer::Ask { operation, wants, .. } => {
                operation.files().into_iter().for_each(|file| activity.notes(file, now));
                wants.iter().for_each(|want| activity.notes(&want.file, now));
            }
            ToServer::Log { entries, .. } => {
                for entry in entries {
                    let LogEntry::Update { operation, .. } = entry else { continue };
                    operation.files().into_iter().for_each(|file| activity.notes(file, now));
                    if let namespace::Operation::Create(create) = operation {
                        activity.notes_new(&create.new.file, now);
                    }
                }
            }
            _ => {}
        }
    }

    /// A server handles an input.
    pub(super) fn serve(&mut self, server: usize, input: Input) -> Result<(), Violation> {
        let now = self.now();
        let outputs = self.servers[server]
            .server
            .handle(now, input)
            .map_err(|what| format!("server {server}: {what}"))?;
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
                Output::Delegated { region, result } => self.delegated(server, region, result),
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

    fn sends_between(&mut self, server: usize, to: ServerId, input: Input) {
        let (arrives, to) = (self.events.now() + self.latency(), usize::from(to.0));
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
        let arrives = self.events.now() + self.latency();
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
        self.servers[server].leaving = Some(region.clone());
        self.serve(server, Input::Delegate { region, to: ServerId(to as u16) })
    }

    /// Whether the server manages the file.
    pub fn manages(&self, server: usize, file: &FileId) -> bool {
        self.servers[server].server.directory.manages(file)
    }

    fn delegated(&mut self, server: usize, region: FileId, result: Result<(), DelegateError>) {
        self.servers[server].leaving = None;
        match result {
            Ok(()) => {
                self.counts.delegations += 1;
                self.activity.moved(region, self.events.now());
            }
            Err(_) => {
                self.counts.stayed += 1;
                self.activity.stayed(region, self.events.now());
            }
        }
    }

    /// A server compares its load with that of another one, and hands regions over if the rule says
    /// so.
    pub(super) fn exchange(&mut self, server: usize) -> Result<(), Violation> {
        let Some(rule) = self.settings.balance else { return Ok(()) };
        self.events.after(rule.every_s * 1_000_000, Event::Exchange { server });
        let count = self.servers.len() as u64;
        if count < 2 || self.servers[server].leaving.is_some() {
            return Ok(());
        }
        let other = (server + 1 + self.below(count - 1) as usize) % self.servers.len();
        let now = self.events.now();
        self.activity.forget(now);
        let of = |server: usize| {
            let manages = |file: &&FileId| self.servers[server].server.directory.manages(file);
            self.activity.files().filter(manages).cloned().collect::<Vec<FileId>>()
        };
        let (mine, theirs) = (of(server), of(other).len());
        let may_go = |region: &FileId| self.activity.may_go(region, now, &rule);
        if let Some(region) = balance::chooses(&rule, &mine, theirs, may_go) {
            self.delegate(server, region, other)?;
        }
        Ok(())
    }
}
