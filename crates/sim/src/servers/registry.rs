//! The registry: machines join, start anew and are expelled, and servers are founded, while feeds
//! of the registry are lost, late and repeated.
//!
//! By what a server has heard, a machine that was expelled, or a start before the latest, has no
//! session there and gets nothing. Once all feeds have arrived, that is so at every server.

use super::machines::Machine;
use super::wires::machine_of;
use super::{Between, LATE_MAX, ManyServers, SPACE};
use crate::host::Violation;
use crate::host::server::{DirectoryHost, enrols};
use client::{Call, call};
use directory::{Input, Output, Registry};
use ident::{FileId, ServerId};
use lease::{OpenModes, SessionId};
use std::collections::BTreeMap;
use wire::{MachineId, Refusal, Rights, ToClient};

/// Machines that join while a run goes on.
const JOIN_MAX: u64 = 3;
/// Servers that are founded while a run goes on.
const FOUNDED_MAX: u64 = 1;

/// The machines in the registry: whether each belongs, and its latest start.
type Said = BTreeMap<MachineId, (bool, u64)>;

/// The registry so far.
#[derive(Default)]
pub(super) struct RegistryHistory {
    /// The registry by its number, as the root server had it.
    history: BTreeMap<u64, Said>,
    /// How far each server has ever come.
    heard: Vec<u64>,
    /// All feeds.
    feeds: Vec<Registry>,
}

impl ManyServers {
    /// A machine that belongs.
    pub(super) fn some_machine(&mut self) -> usize {
        let belong = |machine: &(usize, &Machine)| !machine.1.is_expelled;
        let belong: Vec<usize> = self.machines.iter().enumerate().filter(belong).map(|(at, _)| at).collect();
        belong[self.below(belong.len() as u64) as usize]
    }

    /// Something happens to the registry while no call is under way.
    pub(super) fn registry_changes(&mut self) -> Result<(), Violation> {
        match self.below(60) {
            0 => self.joins(),
            1 => {
                let at = self.some_machine();
                if at > 0 { self.is_expelled(at) } else { Ok(()) }
            }
            2..5 => {
                let at = self.some_machine();
                self.starts_anew(at)
            }
            5 => self.founds(),
            _ => Ok(()),
        }
    }

    fn joins(&mut self) -> Result<(), Violation> {
        if self.tally.joined == JOIN_MAX {
            return Ok(());
        }
        self.tally.joined += 1;
        let at = self.machines.len();
        let id = MachineId(at as u64 + 1);
        enrols(id, Rights::FULL).into_iter().try_for_each(|input| self.serve(0, input))?;
        self.machines.push(Machine::new(id, self.servers.len(), &mut self.rng));
        self.connect(at, ServerId::ROOT)
    }

    /// The machine closes and saves all that it has.
    fn leaves_nothing(&mut self, at: usize) -> Result<(), Violation> {
        let open = self.handles.iter().flat_map(|(file, machines)| {
            machines.iter().filter(|machine| **machine == at).map(|_| file.clone())
        });
        let open: Vec<FileId> = open.collect();
        for file in open {
            self.calls(at, &Call::Close(call::Close { file, open: OpenModes::posix(true, true) }))?;
        }
        self.calls(at, &Call::SyncAll)
    }

    fn is_expelled(&mut self, at: usize) -> Result<(), Violation> {
        self.leaves_nothing(at)?;
        self.tally.expelled += 1;
        let machine = &mut self.machines[at];
        machine.is_expelled = true;
        let machine = machine.id;
        self.serve(0, Input::Expel { machine })
    }

    /// The machine stops and starts again. Its messages may still come, and no one answers for the
    /// sessions that it had.
    fn starts_anew(&mut self, at: usize) -> Result<(), Violation> {
        self.leaves_nothing(at)?;
        self.tally.starts += 1;
        let (id, servers) = (self.machines[at].id, self.servers.len());
        let mut next = Machine::new(id, servers, &mut self.rng);
        next.start = self.machines[at].start + 1;
        let before = std::mem::replace(&mut self.machines[at], next);
        for (server, wire) in before.wires.into_iter().enumerate() {
            let greetings = wire.to_server.iter().filter(|input| matches!(input, Input::Open { .. }));
            self.late.extend(greetings.map(|input| (server, input.clone())));
            let length = wire.to_server.len() as u64 + 1;
            let arrive = self.below(length) as usize;
            self.machines[at].wires[server] = wire.begin_anew(arrive);
        }
        self.connect(at, ServerId::ROOT)
    }

    fn founds(&mut self) -> Result<(), Violation> {
        if self.tally.founded == FOUNDED_MAX {
            return Ok(());
        }
        self.tally.founded += 1;
        let next = ServerId(self.servers.len() as u16);
        self.serve(0, Input::Found { number: 1, founder: 1 })?;
        self.servers.push(DirectoryHost::found_beside(&self.servers[0], next)?);
        self.told.heard.push(self.servers[0].directory.registered());
        self.machines.iter_mut().for_each(|machine| machine.wires.push(Default::default()));
        self.serve(usize::from(next.0), Input::Lead)?;
        self.serve(usize::from(next.0), Input::Space(SPACE))
    }

    /// A host finds the server behind the root server, or believes so, and gives it a feed.
    pub(super) fn feeds(&mut self, server: usize) -> Result<(), Violation> {
        let old = self.below(self.told.feeds.len() as u64) as usize;
        if server > 0
            && self.faults
            && self.one_in(4)
            && let Some(feed) = self.told.feeds.get(old).cloned()
        {
            return self.serve(server, Input::Registry(feed));
        }
        let [root, other] = [&self.servers[0], &self.servers[server]].map(|host| host.directory.registered());
        if other < root {
            let since = other.saturating_sub(self.below(3));
            let root = &self.servers[0];
            let feed = root.directory.registry(since, &root.store);
            self.tally.feeds += 1;
            self.told.feeds.push(feed.clone());
            self.sends(Between { to: ServerId(server as u16), input: Input::Registry(feed) });
        }
        Ok(())
    }

    /// A host is misled: a server other than the root is to change the registry.
    pub(super) fn misleads(&mut self, server: usize) -> Result<(), Violation> {
        if server == 0 {
            return Ok(());
        }
        let machine = MachineId(1 + self.below(self.machines.len() as u64));
        let stranger = enrols(MachineId(self.machines.len() as u64 + 1), Rights::FULL);
        let known = directory::MachineCredential { key: Some([9; 32]), certified: 0, holds: 0 };
        let known = Input::Known { machine, known, itself: true };
        let inputs = [known, Input::Expel { machine }, Input::Found { number: 1, founder: 1 }];
        stranger.into_iter().chain(inputs).try_for_each(|input| self.serve(server, input))
    }

    /// A greeting of an earlier start comes late.
    pub(super) fn comes_late(&mut self) -> Result<(), Violation> {
        self.late.drain(..self.late.len().saturating_sub(LATE_MAX));
        let late = self.below(self.late.len() as u64) as usize;
        let Some((server, input)) = self.late.get(late).cloned() else { return Ok(()) };
        self.serve(server, input)
    }

    /// The machine gets no session. It dials again if the server has not heard of it yet, as its
    /// host does if the root server knows it.
    pub(super) fn turned_away(
        &mut self,
        server: usize,
        connection: u64,
        why: Refusal,
    ) -> Result<(), Violation> {
        let at = machine_of(connection).0 as usize - 1;
        self.tally.turned_away += 1;
        match why {
            Refusal::Unknown(_) if server > 0 => {
                if self.machines[at].wires[server].hang_up(connection) {
                    self.connect(at, ServerId(server as u16))?;
                }
                Ok(())
            }
            Refusal::Expelled(_) if self.machines[at].is_expelled => Ok(()),
            why => Err(format!("server {server} refuses machine {at}: {why}")),
        }
    }

    /// Notes what the server has come to know of the registry. By that, its outputs go to sessions
    /// that may be.
    pub(super) fn registry_is_right(&mut self, server: usize, outputs: &[Output]) -> Result<(), Violation> {
        let host = &self.servers[server];
        let number = host.directory.registered();
        if self.told.heard.len() <= server {
            self.told.heard.push(number);
        }
        if server == 0 && !self.told.history.contains_key(&number) {
            let machines = host.directory.machines(self.now, &host.store).into_iter();
            let start = |id| host.directory.latest_start(id, &host.store).unwrap_or(0);
            let said = machines.map(|it| (it.machine, (it.expelled.is_none(), start(it.machine))));
            self.told.history.insert(number, said.collect());
        }
        let heard = &mut self.told.heard[server];
        let is_news = number > std::mem::replace(heard, number.max(*heard));
        let Some(said) = self.told.history.get(heard) else {
            return Err(format!("server {server} has heard of a change {heard} that there was not"));
        };
        let may_be = |(machine, start): &(MachineId, u64)| {
            said.get(machine).is_some_and(|(belongs, latest)| *belongs && start >= latest)
        };
        for ((at, session), its) in self.begun.range((server, SessionId(0))..(server + 1, SessionId(0))) {
            if is_news && host.directory.has_through(*session).is_some() && !may_be(its) {
                return Err(format!("server {at} keeps {session:?} of {its:?}"));
            }
        }
        for output in outputs {
            match output {
                Output::Opened { machine, incarnation, .. } if !may_be(&(*machine, *incarnation)) => {
                    return Err(format!("server {server} begins a session of {machine:?}'s {incarnation}"));
                }
                Output::Send { session, message } if *message != ToClient::Fenced => {
                    let its = self.begun.get(&(server, *session));
                    if its.is_some_and(|its| !may_be(its)) {
                        return Err(format!("server {server} tells {session:?} of {its:?} {message:?}"));
                    }
                }
                Output::Enrolled { result: Ok(_), .. } | Output::Expelled { result: Ok(()), .. }
                    if server > 0 =>
                {
                    return Err(format!("server {server} changes the registry: {output:?}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// All feeds arrive: every server has the root server's registry, and no machine that is
    /// expelled has a session.
    pub(super) fn all_feeds_arrive(&mut self) -> Result<(), Violation> {
        for server in 1..self.servers.len() {
            let since = self.servers[server].directory.registered();
            let root = &self.servers[0];
            let feed = root.directory.registry(since, &root.store);
            self.serve(server, Input::Registry(feed))?;
        }
        let registry = |host: &DirectoryHost| {
            let machines = host.directory.machines(self.now, &host.store);
            let named = machines.into_iter().map(|it| (it.machine, it.name, it.expelled));
            (named.collect::<Vec<_>>(), host.directory.all_known(&host.store))
        };
        for (server, host) in self.servers.iter().enumerate() {
            if registry(host) != registry(&self.servers[0]) {
                return Err(format!("server {server} has another registry than the root server"));
            }
            for machine in self.machines.iter().filter(|machine| machine.is_expelled) {
                let refusal = Refusal::Expelled(machine.id);
                if host.directory.admits(machine.id, &host.store) != Err(refusal) {
                    return Err(format!("server {server} admits {:?}, which is expelled", machine.id));
                }
            }
        }
        let founded = self.servers[0].directory.servers(&self.servers[0].store);
        let numbers = (1..self.servers.len()).map(|number| (ServerId(number as u16), 1));
        if founded != numbers.collect::<Vec<_>>() {
            return Err(format!("the servers are {founded:?}"));
        }
        Ok(())
    }
}
