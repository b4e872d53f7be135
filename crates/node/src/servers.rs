//! Servers as people see them: adding, draining and removing them, and how they stand. All of it
//! runs on the leader.

use crate::error::failed;
use crate::server::Server;
use admin::{
    ContentKeeping, ControlProgress, ControlRefusal, MachineName, MachineStanding, RequestWork,
    ServerStanding,
};
use raft::{Host, Keeping, Member, MembersError, wait};
use std::time::{Duration, Instant};
use wire::{MachineId, latest_addresses};

/// How long a machine may take to become a server, beside the time to learn the state.
const TIMEOUT: Duration = Duration::from_secs(60);
/// A machine and its server are heard of at times that differ by less while both are up, ms.
const APART_MS: u64 = 2_000;
/// How often progress is reported to people.
const LOOK: Duration = Duration::from_millis(500);
/// The silence after which a server counts as away: others keep its shares then.
const AWAY: Duration = Duration::from_secs(600);

impl Server {
    /// Returns how the servers stand.
    pub(crate) fn server_standings(&self) -> Vec<ServerStanding> {
        let (standing, applied) = (self.group().standing(), self.group().status().applied);
        let machines = self.machines();
        let is_up_since = |machine: u64, heard: Option<u64>| {
            let since = heard.unwrap_or(u64::MAX).saturating_sub(APART_MS);
            machines.iter().any(|report| {
                let is_up = matches!(report.standing, MachineStanding::Up { heard_ms } if heard_ms < since);
                report.machine == machine && is_up
            })
        };
        let report = |member: &Member| {
            let leads = standing.leader == Some(member.id);
            let heard_ms = member.heard.map(|at| at.elapsed().as_millis() as u64);
            ServerStanding {
                machine: member.host.machine,
                name: member.host.name.clone(),
                addresses: member.host.addresses.clone(),
                leads,
                votes: member.votes,
                keeping: match member.host.keeping {
                    Keeping::Keeps => ContentKeeping::Keeps { weight_gib: None },
                    Keeping::Weighs(gib) => ContentKeeping::Keeps { weight_gib: Some(gib) },
                    Keeping::Away => ContentKeeping::Away,
                    Keeping::Drains => ContentKeeping::Drains,
                },
                behind: if leads { Some(0) } else { member.reached.map(|at| applied.saturating_sub(at)) },
                heard_ms,
                machine_up: !leads && is_up_since(member.host.machine, heard_ms),
                speaks: self.speaks(member.id).map(|version| version.0),
            }
        };
        standing.members.iter().map(report).collect()
    }

    /// Makes the machine `who` (a name or a number) a server. Blocks until that machine has learnt
    /// everything up to the moment of the request.
    pub(crate) fn add_server(
        &self,
        who: &str,
        here: Option<Vec<String>>,
        progress: &mut dyn FnMut(&ControlProgress),
    ) -> Result<MachineName, ControlRefusal> {
        let here = here.ok_or(ControlRefusal::NotListening)?;
        let named = self.machine(who)?;
        let (machine, who) = (named.id(), who.to_owned());
        if let Some(Member { id, host, .. }) = self.member_on(machine) {
            if host.keeping != Keeping::Drains {
                return Err(ControlRefusal::ServesAlready { machine: who });
            }
            let host = Host { keeping: Keeping::Keeps, ..host };
            wait(self.group().set_member(id, host)).map_err(unchanged)?;
            progress(&ControlProgress::KeepsAgain { machine: who });
            return Ok(named);
        }
        let own =
            self.group().standing().members.into_iter().find(|member| member.id == self.group().member());
        if let Some(Member { id, host, .. }) = own.filter(|own| own.host.addresses != here) {
            let host = Host { addresses: here, name: self.name_of(MachineId(host.machine)), ..host };
            wait(self.group().set_member(id, host)).map_err(unchanged)?;
        }
        self.choose(machine);
        // The answer to its next greeting informs it.
        self.root().routes().lock().disconnect(machine);
        progress(&ControlProgress::AskedToServe { machine: who.clone() });
        let (began, mut said) = (Instant::now(), None);
        // It learns later entries as any other server: a busy group is always some entries ahead of
        // it.
        let all = self.group().status().applied;
        loop {
            std::thread::sleep(LOOK);
            if !self.group().leads() {
                return Err(ControlRefusal::LeadLostAdding);
            }
            let Some(member) = self.member_on(machine) else {
                if began.elapsed() > TIMEOUT {
                    self.chosen().lock().remove(&machine);
                    return Err(ControlRefusal::DoesNotServe { machine: who });
                }
                continue;
            };
            let behind = member.reached.map(|at| all.saturating_sub(at));
            // Until it votes, the others depend on the leader as before.
            if behind == Some(0) && (self.group().is_settled() || began.elapsed() > TIMEOUT) {
                progress(&ControlProgress::Serves { machine: who });
                return Ok(named);
            }
            if behind != said {
                progress(&ControlProgress::Behind { machine: who.clone(), entries: behind });
                said = behind;
            }
        }
    }

    /// Chooses a number in the group for `machine`, which is to be a server.
    fn choose(&self, machine: MachineId) -> u64 {
        let mut chosen = self.chosen().lock();
        let number = chosen.values().max().map_or(0, |last| last + 1).max(self.group().next_member());
        chosen.insert(machine, number);
        number
    }

    /// Whether `machine` is a server, or about to be one, as the leader knows.
    pub(crate) fn may_serve(&self, machine: MachineId) -> bool {
        self.chosen().lock().contains_key(&machine) || self.member_on(machine).is_some()
    }

    /// Returns the number in the group by which `machine` may be a server, if it may. A server that
    /// asks has lost the state of its member.
    pub(crate) fn number_for(&self, machine: MachineId) -> Option<u64> {
        let chosen = self.chosen().lock().get(&machine).copied();
        chosen.or_else(|| {
            let lost = self.member_on(machine)?;
            tracing::warn!(server = lost.host.name, "a server has lost what it had, and is added anew");
            Some(self.choose(machine))
        })
    }

    /// Makes the server `who` an ordinary machine again. Its shares should be on others by then:
    /// see [`Server::drain`].
    pub(crate) fn remove_server(
        &self,
        who: &str,
        progress: &mut dyn FnMut(&ControlProgress),
    ) -> Result<MachineName, ControlRefusal> {
        let named = self.machine(who)?;
        let mut members = self.group().standing().members;
        members.retain(|member| member.host.machine == named.machine);
        if members.is_empty() {
            return Err(ControlRefusal::NotServer { machine: who.to_owned() });
        }
        if self.group().standing().alone {
            return Err(ControlRefusal::OnlyServer);
        }
        self.leaves_others(who, &members)?;
        for member in members {
            wait(self.group().remove_member(member.id)).map_err(unchanged)?;
        }
        progress(&ControlProgress::Removed { machine: who.to_owned() });
        Ok(named)
    }

    /// Waits until no other server of the directory has one of these `members` any more, which are
    /// of the machine `who`. It may be the only voter of one. The leaders of these servers remove a
    /// member that drains. A member does not hear that it was removed, so another machine has to
    /// look.
    fn leaves_others(&self, who: &str, members: &[Member]) -> Result<(), ControlRefusal> {
        if self.is_one() {
            return Ok(());
        }
        if members.iter().any(|member| member.id == self.group().member()) {
            // The only voter of two has nobody to hand over to.
            if self.group().standing().members.iter().filter(|member| member.votes).count() < 2 {
                return Err(ControlRefusal::ServersStay { machine: who.to_owned() });
            }
            drop(self.group().hand_over());
            return Err(ControlRefusal::LeadsYet { machine: who.to_owned() });
        }
        let ids: Vec<u64> = members.iter().map(|member| member.id).collect();
        let begun = Instant::now();
        while !self.is_left_by(&ids) {
            for Member { id, host, .. } in members.iter().filter(|it| it.host.keeping != Keeping::Drains) {
                let host = Host { keeping: Keeping::Drains, ..host.clone() };
                wait(self.group().set_member(*id, host)).map_err(unchanged)?;
            }
            if begun.elapsed() > TIMEOUT || self.is_stopping() {
                return Err(ControlRefusal::ServersStay { machine: who.to_owned() });
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Moves the shares of the server `who` to others. Blocks until they keep them.
    pub(crate) fn drain(
        &self,
        who: &str,
        progress: &mut dyn FnMut(&ControlProgress),
    ) -> Result<MachineName, ControlRefusal> {
        let named = self.machine(who)?;
        let machine = named.id();
        let member = self.member_on(machine);
        let Member { id, host, .. } =
            member.ok_or_else(|| ControlRefusal::NotServer { machine: who.to_owned() })?;
        let others = self.group().standing().members.into_iter().filter(|other| other.id != id);
        if !others.into_iter().any(|other| other.host.keeping.keeps()) {
            return Err(ControlRefusal::OnlyKeeper);
        }
        wait(self.group().set_member(id, Host { keeping: Keeping::Drains, ..host })).map_err(unchanged)?;
        let mut said = None;
        loop {
            std::thread::sleep(LOOK);
            if self.is_stopping() || !self.group().leads() {
                return Err(ControlRefusal::LeadLostDraining);
            }
            let hosts = self.share_host().peers().hosts().now();
            let fingerprint = hosts.fingerprint();
            let keeps =
                |machine: MachineId| hosts.all().iter().any(|host| host.machine == machine && host.keeps());
            let standings = self.share_host().standings();
            if keeps(machine) || standings.is_empty() {
                continue;
            }
            let left =
                standings.iter().find(|(at, _)| *at == machine).and_then(|(_, standing)| standing.as_ref());
            // For a dead server only the others can report the progress.
            let is_empty = left.is_none_or(|left| left.hosts == fingerprint && left.kept == 0);
            let keepers = || standings.iter().filter(|(at, _)| keeps(*at));
            let missing: u64 = keepers().filter_map(|(_, standing)| Some(standing.as_ref()?.missing)).sum();
            let complete = keepers().all(|(_, standing)| {
                standing.as_ref().is_some_and(|standing| standing.hosts == fingerprint && standing.complete)
            });
            if is_empty && complete {
                progress(&ControlProgress::Drained { machine: who.to_owned() });
                return Ok(named);
            }
            let now = (left.map(|left| left.kept), missing);
            if said != Some(now) {
                let (left, missing) = now;
                progress(&ControlProgress::Draining { machine: who.to_owned(), left, missing });
                said = Some(now);
            }
        }
    }

    /// Admits a chosen machine that is up as the server `member`, at these addresses. Of a member,
    /// it notes new addresses.
    pub(crate) fn is_ready(
        &self,
        machine: MachineId,
        member: u64,
        addresses: Vec<String>,
    ) -> Result<(), String> {
        let chosen = self.chosen().lock().get(&machine) == Some(&member);
        let host = match self.member_on(machine) {
            Some(known) if known.id == member => {
                let addresses = latest_addresses(&known.host.addresses, addresses);
                Host { addresses, ..known.host }
            }
            // It takes the place of the lost one, which may be about to be drained.
            Some(lost) if chosen => {
                let addresses = latest_addresses(&lost.host.addresses, addresses);
                Host { addresses, ..lost.host }
            }
            Some(_) => return Err("this machine is a server by another number".to_owned()),
            None if chosen => {
                Host { machine: machine.0, name: self.name_of(machine), addresses, keeping: Keeping::Keeps }
            }
            None => return Err("nobody has asked this machine to serve: leasehold server add".to_owned()),
        };
        wait(self.group().set_member(member, host)).map_err(|error| error.to_string())
    }

    /// Lets servers vote that can. Marks those that were away for long, and those that are back.
    pub(crate) fn tend_members(&self) {
        let standing = self.group().standing();
        if standing.alone {
            return;
        }
        if let Err(error) = wait(self.group().settle_voters()) {
            tracing::warn!(%error, "the servers that vote could not be settled; it is tried again");
        }
        for Member { id, host, heard, .. } in standing.members {
            let silent = heard.is_some_and(|at| at.elapsed() > AWAY);
            let keeping = match host.keeping {
                Keeping::Keeps | Keeping::Weighs(_) if silent => Keeping::Away,
                Keeping::Away if !silent && heard.is_some() => Keeping::Keeps,
                _ => continue,
            };
            tracing::warn!(server = host.name, ?keeping, "what a server keeps changes");
            if let Err(error) = wait(self.group().set_member(id, Host { keeping, ..host })) {
                tracing::warn!(%error, "the servers could not be changed; it is tried again");
            }
        }
    }

    /// Returns the member of the group on this machine: the latest, if earlier ones are lost.
    pub(crate) fn member_on(&self, machine: MachineId) -> Option<Member> {
        self.group().standing().members.into_iter().rfind(|member| member.host.machine == machine.0)
    }

    pub(crate) fn name_of(&self, machine: MachineId) -> String {
        let named = self.machines().into_iter().find(|report| report.machine == machine.0);
        named.map_or_else(|| machine.0.to_string(), |report| report.name)
    }

    /// Returns the machine of this name or number.
    pub(crate) fn machine(&self, who: &str) -> Result<MachineName, ControlRefusal> {
        let named = self.machines().into_iter().find(|report| {
            !report.expelled
                && (report.name == who || who.parse().is_ok_and(|number: u64| number == report.machine))
        });
        let named = named.ok_or_else(|| ControlRefusal::NoMachine { machine: who.to_owned() })?;
        Ok(MachineName { machine: named.machine, name: named.name })
    }
}

/// The refusal because the servers could not be changed.
fn unchanged(error: MembersError) -> ControlRefusal {
    failed(RequestWork::ChangingServers, &error)
}
