//! The host of a server: its connections to machines, the sessions that go over them, and the share
//! server's work.

use super::events::Event;
use super::replica::Replica;
use super::state::link::{Packet, Way};
use super::{Mutation, Violation, World};
use directory::{Input, Output, ShareWork};
use lease::{SessionId, Time};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use wire::{AskMode, GreetingNumber, LogEntry, ToClient, ToServer};

/// Time between a server's readings of its clock, ms.
const TICK_MS: u64 = 500;
/// A server scrubs its whole disk at one in so many readings of its clock.
const SCRUB_ODDS: u64 = 60;
/// A client's request numbers are less than this.
const NUMBERS: u64 = 1 << 40;

impl World {
    pub(super) fn servers_begin(&mut self, machines: u64) -> Result<(), Violation> {
        if self.weather.shipped {
            self.begins_group();
            self.later(TICK_MS, Event::ServerTicks);
            return self.shipped_begin(machines);
        }
        if self.group.is_lone() {
            self.lone_leads();
        } else {
            self.begins_group();
            self.later(0, Event::Watches);
            self.stands(0, true)?;
        }
        self.later(TICK_MS, Event::ServerTicks);
        Ok(())
    }

    pub(super) fn server_ticks(&mut self) -> Result<(), Violation> {
        self.later(TICK_MS, Event::ServerTicks);
        for at in 0..self.group.replicas.len() {
            if self.group.replicas[at].stopped_until > self.now {
                continue;
            }
            self.propose(at, Input::Tick);
            self.raises_version(at);
            if !self.weather.shipped {
                self.tends_group(at);
            }
            if self.weather.rots > 0 && !self.group.is_lone() && self.happens(SCRUB_ODDS) {
                self.scrubs(at);
            }
        }
        if self.weather.shipped {
            self.tends_members();
        }
        Ok(())
    }

    /// Whether this server leads, as far as it knows.
    pub(super) fn leads(&self, server: usize) -> bool {
        if self.weather.shipped {
            self.member_leads(server)
        } else {
            self.group.replicas[server].leads.is_some()
        }
    }

    /// The leading server, if there is one: that of the latest term.
    pub(super) fn leader(&self) -> Option<usize> {
        if self.weather.shipped { self.shipped.leader() } else { self.group.leader() }
    }

    /// Puts an input into the log, if this server leads.
    pub(super) fn propose(&mut self, server: usize, input: Input) {
        match (self.weather.shipped, self.group.is_lone()) {
            (true, _) => self.member_proposes(server, input),
            (false, true) => self.lone_proposes(input),
            (false, false) => self.adds_to_batch(server, input),
        }
    }

    /// A machine greets a server. A server that does not lead turns the machine away, and names the
    /// leader if it knows one.
    pub(super) fn server_is_greeted(
        &mut self,
        server: usize,
        at: usize,
        connection: u64,
        incarnation: u64,
        session: Option<SessionId>,
    ) {
        let (machine, lone) = (self.machines[at].id, self.group.is_lone());
        if !lone && !self.leads(server) {
            return self.turns_away(server, at, connection);
        }
        let replica = &mut self.group.replicas[server];
        // From here on no other connection of this machine counts.
        if replica.host.listens_to(at, connection) {
            let version = self.machines[at].speaks.min(replica.knows.newest);
            // The machine counts its connections, and so its greetings.
            let greeting = GreetingNumber { drawn: incarnation, count: connection };
            self.propose(
                server,
                Input::Open { machine, incarnation, greeting, session, connection, version },
            );
        }
    }

    pub(super) fn turns_away(&mut self, server: usize, at: usize, connection: u64) {
        let follows = match self.weather.shipped {
            true => self.member_follows(server),
            false => self.group.replicas[server].follows,
        };
        let leader = follows.filter(|leader| *leader != server);
        self.send(at, Way::Down, connection, Packet::Away { leader });
        self.links[at].is_closed(connection);
    }

    /// The server leads no more: its connections end.
    pub(super) fn turns_all_away(&mut self, server: usize) {
        let host = std::mem::take(&mut self.group.replicas[server].host);
        for (at, connection) in host.listens {
            self.turns_away(server, at, connection);
        }
    }

    /// A message of a machine arrives over a connection.
    pub(super) fn server_hears(
        &mut self,
        server: usize,
        at: usize,
        connection: u64,
        message: ToServer,
    ) -> Result<(), Violation> {
        let replica = &self.group.replicas[server];
        let Some(session) = replica.host.sessions.get(&connection).copied().filter(|_| replica.up) else {
            return Ok(());
        };
        if let ToServer::Extents { .. } = message {
            if self.weather.shipped {
                self.member_is_asked(server, at, connection, session, message);
                return Ok(());
            }
            if !self.group.is_lone() {
                return self.is_asked(server, at, connection, session, message);
            }
            if let Some(answer) = replica.directory.query(session, &message, &replica.store) {
                self.send(at, Way::Down, connection, Packet::Tells(answer));
            }
            return Ok(());
        }
        let message = match message {
            // A mutation: the server forgets that it was asked before, since each connection's
            // requests have numbers of their own.
            ToServer::Ask { number, operation, wants, mode: mode @ AskMode::Ship }
                if self.weather.lie == Some(Mutation::ShipsForgotten) =>
            {
                ToServer::Ask { number: number + connection * NUMBERS, operation, wants, mode }
            }
            message => message,
        };
        self.propose(server, Input::Message { session, message });
        Ok(())
    }

    /// Applies an input of the log. Returns its outputs, unless the server came upon damage.
    pub(super) fn applies_input(
        &mut self,
        server: usize,
        time: Time,
        input: &Input,
    ) -> Result<Option<Vec<Output>>, Violation> {
        let forgets =
            self.weather.lie == Some(Mutation::ShipsForgotten) && matches!(input, Input::Open { .. });
        let replica = &mut self.group.replicas[server];
        let mut out = Vec::new();
        let believes = self.weather.lie == Some(Mutation::BelievesRot);
        let Replica { directory, store, .. } = replica;
        let handle = || directory.handle(time, input.clone(), store, &mut out);
        // After a damaged row even an assertion may fail. `raft` does not come that far.
        let handled = catch_unwind(AssertUnwindSafe(handle));
        if replica.store.is_noticed() && !believes {
            self.server_is_lost(server);
            return Ok(None);
        }
        handled.unwrap_or_else(|panic| resume_unwind(panic)).map_err(|e| e.to_string())?;
        if let Some((session, misdeed)) = replica.directory.misdeeds().first() {
            return Err(format!("{session:?}: {misdeed}"));
        }
        // The mutated server has no results of operations from an earlier connection.
        out.retain(|output| {
            !(forgets && matches!(output, Output::Send { message: ToClient::Shipped { .. }, .. }))
        });
        self.notes(|| format!("server {server} at {time:?}: {input:?}, so {out:?}"));
        Ok(Some(out))
    }

    /// Notes in the history what the server did with updates.
    pub(super) fn note_applied(&mut self, input: &Input, out: &[Output]) -> Result<(), Violation> {
        self.history.left.clear();
        if let Input::Message {
            session,
            message: ToServer::Ask { number, operation, mode: AskMode::Ship, .. },
        } = input
        {
            self.history.asked(*session, *number, operation.clone());
        }
        self.note_log(input, out)?;
        // Operations that waited for this log were done after it.
        for output in out {
            if let Output::Send { session, message: ToClient::Shipped { number, result: Ok((_, effects)) } } =
                output
            {
                self.history.shipped(*session, *number, effects)?;
            }
        }
        self.check_rights(out)
    }

    fn note_log(&mut self, input: &Input, out: &[Output]) -> Result<(), Violation> {
        let Input::Message { session, message: ToServer::Log { first, entries, .. } } = input else {
            return Ok(());
        };
        let refused = out.iter().find_map(|output| match output {
            Output::Send { session: to, message: ToClient::Applied { rejected, .. } } if to == session => {
                Some(rejected.as_slice())
            }
            _ => None,
        });
        // Entries of an ended session are not applied. The client learns of a refused entry at
        // once.
        let over = |output: &Output| matches!(output, Output::Send { session: to, message: ToClient::Fenced } if to == session);
        let (rejected, up_to) = (refused.unwrap_or_default(), first + entries.len() as u64 - 1);
        if entries.is_empty() || out.iter().any(over) {
            return Ok(());
        }
        // Entries that were sent again were applied before.
        let fresh = self.history.fresh(*session, up_to);
        let updates = (*first..=up_to).zip(entries).filter(|(number, _)| {
            fresh.contains(number) && !rejected.iter().any(|(refused, _)| refused == number)
        });
        for (_, entry) in updates {
            if let LogEntry::Update { version, operation } = entry {
                let newest = self.group.replicas.iter().map(|replica| replica.directory.version()).max();
                self.happened.by_last_version += u64::from(newest > Some(*version));
                self.check_change(*session, operation)?;
                self.history.applied(*session, operation)?;
            }
        }
        Ok(())
    }

    /// An output leaves the server.
    pub(super) fn server_puts_out(&mut self, server: usize, output: Output) -> Result<(), Violation> {
        let replica = &mut self.group.replicas[server];
        let (host, start) = (&mut replica.host, replica.start);
        match output {
            Output::Opened { session, connection, machine, .. } => {
                let at = machine.0 as usize - 1;
                if host.listens.get(&at) == Some(&connection) {
                    host.sessions.insert(connection, session);
                    host.routes.insert(session, (at, connection));
                    self.send(at, Way::Down, connection, Packet::Opened(session));
                }
            }
            Output::Send { session, message } => {
                let message = match message {
                    ToClient::Shipped { number, result } => {
                        ToClient::Shipped { number: number % NUMBERS, result }
                    }
                    message => message,
                };
                if let Some((at, connection)) = host.routes.get(&session).copied() {
                    self.send(at, Way::Down, connection, Packet::Tells(message));
                }
            }
            Output::Shares(work) => {
                let wait = 1 + self.below(50);
                self.later(wait, Event::Settles(server, start, work));
            }
            Output::Again => self.propose(server, Input::Tick),
            Output::Sync => {}
            Output::Raised { .. } => {
                self.happened.raised += 1;
                self.turns_all_away(server);
            }
            Output::Refused { why, .. } => return Err(why.to_string()),
            Output::Delegated { .. }
            | Output::HandOver { .. }
            | Output::Joint { .. }
            | Output::PathLease { .. }
            | Output::Founded { .. } => {
                return Err(format!("nothing was to go from the one server to another: {output:?}"));
            }
            Output::Invited { .. } => self.limits.invited = true,
            Output::Enrolled { result: Ok((machine, _)), .. } => self.limits.enrolled = machine.0,
            Output::Enrolled { .. }
            | Output::Expelled { .. }
            | Output::Authorized { .. }
            | Output::Revoked { .. } => {}
        }
        Ok(())
    }

    pub(super) fn settles(
        &mut self,
        server: usize,
        start: u64,
        work: Vec<ShareWork>,
    ) -> Result<(), Violation> {
        if start == self.group.replicas[server].start {
            self.propose(server, Input::SharesSettled(work));
        }
        Ok(())
    }

    pub(super) fn server_starts(&mut self, server: usize) -> Result<(), Violation> {
        match (self.weather.shipped, self.group.is_lone()) {
            (true, _) => self.member_comes_back(server),
            (false, true) => return self.lone_starts(),
            (false, false) => return self.replica_starts(server),
        }
        Ok(())
    }

    /// Crashes some servers, each for a random time. Or the leader hands over, and may crash at any
    /// moment of that.
    pub(super) fn servers_crash(&mut self) {
        let pause = self.some_time(40_000);
        if self.group.is_lone() {
            return self.lone_crashes(pause);
        }
        let replicas = self.group.replicas.len();
        let leader = self.leader().unwrap_or_default();
        if self.weather.shipped && self.one_in(3) {
            self.member_hands_over(leader);
            if self.one_in(2) {
                return;
            }
        }
        let (some, others) =
            (self.below(replicas as u64) as usize, 1 + self.below(replicas as u64 - 1) as usize);
        match self.below(5) {
            0..2 => self.one_crashes(leader, pause),
            2 => self.one_crashes((leader + others) % replicas, pause),
            3 => {
                for next in 0..replicas / 2 {
                    self.one_crashes((some + next) % replicas, pause);
                }
            }
            _ => {
                for at in 0..replicas {
                    let pause = self.some_time(40_000);
                    self.one_crashes(at, pause);
                }
            }
        }
    }

    fn one_crashes(&mut self, at: usize, pause: u64) {
        if self.weather.shipped { self.member_crashes(at, pause) } else { self.replica_crashes(at, pause) }
    }
}
