//! The cluster as people see it: invitations, machines, expulsions, and the leases on a file.

use crate::error::failed;
use crate::hosted::HostedServer;
use crate::server::Server;
use admin::{
    ControlRefusal, FileLeases, Invitation, InvitationReport, Invited, LeaseLine, LeaseRight, LeaseStanding,
    MachineName, MachineReport, MachineStanding, RequestWork, RightsReport,
};
use data_encoding::HEXLOWER;
use directory::{Input, Standing};
use lease::Kind;
use net::{Listener, Token, fingerprint};
use os::fill_random;
use os::utc_secs;
use std::fs::DirEntry;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use wire::{ExpelError, MachineId, Rights};

/// How long the directory may take for an order.
const TIMEOUT: Duration = Duration::from_secs(30);
/// How often it is looked whether all servers have heard.
const LOOK: Duration = Duration::from_millis(20);

/// The directory has not answered in time.
#[derive(Debug, thiserror::Error)]
#[error("the directory does not answer within {} s: leasehold status says why", TIMEOUT.as_secs())]
pub(crate) struct Silent;

impl From<Silent> for ControlRefusal {
    fn from(_: Silent) -> ControlRefusal {
        ControlRefusal::DirectorySilent { within_s: TIMEOUT.as_secs() }
    }
}

/// Why a machine does not leave the cluster. The words are for that machine.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LeaveError {
    /// It is a server.
    #[error("this machine is a server: leasehold server remove this machine first")]
    IsServer,
    /// The directory has not answered.
    #[error(transparent)]
    Silent(#[from] Silent),
    /// The directory does not expel it.
    #[error(transparent)]
    Expel(#[from] ExpelError),
}

impl Server {
    /// Makes a token.
    pub(crate) fn invite(
        &self,
        invitation: Invitation,
        listener: &Listener,
    ) -> Result<Invited, ControlRefusal> {
        let Invitation { path, read_only, squash, good_for_s, addresses } = invitation;
        let root = self.resolve(path.as_bytes());
        let root = root.ok_or(ControlRefusal::NoDirectory { path })?;
        let may = Rights { root, read_only, squash };
        let mut secret = [0; 16];
        fill_random(&mut secret).map_err(|error| failed(RequestWork::MakingToken, &error))?;
        let addresses = if addresses.is_empty() { reachable_at(listener.address()) } else { addresses };
        let authority = fingerprint(self.authority()?.certificate());
        let token = Token::hash(&secret);
        let (tell, told) = sync_channel(1);
        self.waiting().lock().invited.insert(token, tell);
        let at = utc_secs();
        let until = at.saturating_add(good_for_s);
        let report = rights(self.path(&may.root), &may);
        self.group().propose(Input::Invite { token, rights: may, at, until });
        answered(&told)?.map_err(|why| ControlRefusal::Invite { why })?;
        let (id, token) = (invitation_id(&token), Token { addresses, authority, secret }.to_string());
        let invitation = InvitationReport { id, rights: report, until, expired: false };
        Ok(Invited { token, invitation })
    }

    /// Lists the invitations by which no machine has joined yet.
    pub(crate) fn invitations(&self) -> Vec<InvitationReport> {
        let now = utc_secs();
        self.group().query(|directory, store| {
            let report = |known: directory::InvitationReport| InvitationReport {
                id: invitation_id(&known.token),
                rights: rights(directory.path(store, &known.rights.root), &known.rights),
                until: known.until,
                expired: known.until <= now,
            };
            directory.invitations(store).into_iter().map(report).collect()
        })
    }

    /// Whether there is no other machine, and no open invitation.
    pub(crate) fn awaits_nobody(&self) -> bool {
        let now = self.group().now();
        let machines = self.group().query(|directory, store| directory.machines(now, store).len());
        machines <= 1 && self.invitations().iter().all(|invitation| invitation.expired)
    }

    /// Revokes the invitation of this name: no machine can join by it any more.
    pub(crate) fn revoke(&self, id: &str) -> Result<(), ControlRefusal> {
        let known = self.group().query(|directory, store| directory.invitations(store));
        let token = known.into_iter().map(|known| known.token).find(|token| invitation_id(token) == id);
        let token = token.ok_or_else(|| ControlRefusal::NoInvitation { id: id.to_owned() })?;
        let (tell, told) = sync_channel(1);
        self.waiting().lock().revoked.insert(token, tell);
        self.group().propose(Input::Revoke { token });
        answered(&told)?.map_err(|why| ControlRefusal::Revoke { why })
    }

    /// Expels a machine, by its name or its number, and closes its connections.
    pub(crate) fn expel(&self, who: &str) -> Result<MachineName, ControlRefusal> {
        let machine = self.machine(who)?;
        self.leave(machine.id()).map_err(|error| match error {
            LeaveError::IsServer => ControlRefusal::IsServer { machine: who.to_owned() },
            LeaveError::Silent(Silent) => Silent.into(),
            LeaveError::Expel(why) => ControlRefusal::Expel { why },
        })?;
        Ok(machine)
    }

    /// Removes the machine from the cluster.
    pub(crate) fn leave(&self, machine: MachineId) -> Result<(), LeaveError> {
        if self.member_on(machine).is_some() {
            return Err(LeaveError::IsServer);
        }
        let (tell, told) = sync_channel(1);
        self.waiting().lock().expelled.insert(machine, tell);
        self.group().propose(Input::Expel { machine });
        answered(&told)??;
        self.disconnect(machine);
        Ok(self.all_hear()?)
    }

    /// Waits until every server of the directory knows the machines that the root server knows now.
    fn all_hear(&self) -> Result<(), Silent> {
        let (begun, number) = (Instant::now(), self.group().query(|directory, _| directory.registered()));
        let is_behind =
            |hosted: &Arc<HostedServer>| hosted.group().query(|directory, _| directory.registered()) < number;
        while self.all_hosted().iter().any(is_behind) {
            if begun.elapsed() > TIMEOUT {
                return Err(Silent);
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Lists all machines, expelled ones among them.
    pub(crate) fn machines(&self) -> Vec<MachineReport> {
        let now = self.group().now();
        self.group().query(|directory, store| {
            let report = |known: directory::MachineReport| {
                let rights = rights(directory.path(store, &known.rights.root), &known.rights);
                machine_report(known, rights)
            };
            directory.machines(now, store).into_iter().map(report).collect()
        })
    }

    /// Lists the machines that hold or await leases on the fields of the file at `path`.
    pub(crate) fn leases(&self, path: &str) -> Result<FileLeases, ControlRefusal> {
        let now = self.group().now();
        self.group().query(|directory, store| {
            let file = directory.resolve(store, path.as_bytes());
            let file = file.ok_or_else(|| ControlRefusal::NoFile { path: path.to_owned() })?;
            let leases = directory.leases(now, store, &file).into_iter().map(lease_line);
            Ok(FileLeases { file: file.to_string(), leases: leases.collect() })
        })
    }

    /// The reason to close the connections of `machine`, if there is one.
    pub(crate) fn refuses(&self, machine: MachineId) -> Option<String> {
        let admitted = self.group().query(|directory, store| directory.admits(machine, store));
        admitted.err().map(|refusal| refusal.to_string())
    }
}

/// The addresses at which others can probably reach this machine: the one it listens on, or each of
/// its own.
pub(crate) fn reachable_at(listens: SocketAddr) -> Vec<String> {
    wire::told_to_others(own_addresses(listens))
}

/// The addresses at which this machine can reach itself: the one it listens on, or each of its own.
pub(crate) fn own_addresses(listens: SocketAddr) -> Vec<String> {
    if !listens.ip().is_unspecified() {
        return vec![listens.to_string()];
    }
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let usable = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_link_local(),
        // Without its interface a link-local address means nothing elsewhere.
        IpAddr::V6(ip) => listens.is_ipv6() && !ip.is_unicast_link_local(),
    };
    let mut addresses: Vec<(bool, IpAddr)> = interfaces
        .iter()
        .filter(|interface| usable(&interface.ip()))
        .map(|interface| (ends_here(Path::new("/sys/class/net"), &interface.name), interface.ip()))
        .collect();
    // The loopback comes last: it serves only this host.
    addresses.sort_by_key(|(ends_here, ip)| (ip.is_loopback(), *ends_here, ip.is_ipv6()));
    addresses.into_iter().map(|(_, ip)| SocketAddr::new(ip, listens.port()).to_string()).collect()
}

/// Whether this is a bridge without devices, such as those of containers and virtual machines here.
/// No other machine reaches its address, and other machines may have a network of their own there.
/// `interfaces` is the directory in which Linux lists interfaces.
fn ends_here(interfaces: &Path, name: &str) -> bool {
    let Ok(mut ports) = std::fs::read_dir(interfaces.join(name).join("brif")) else { return false };
    let has_device = |port: io::Result<DirEntry>| {
        port.is_ok_and(|port| interfaces.join(port.file_name()).join("device").exists())
    };
    !ports.any(has_device)
}

fn machine_report(report: directory::MachineReport, rights: RightsReport) -> MachineReport {
    let directory::MachineReport { machine, name, expelled, session, .. } = report;
    let standing = match (&expelled, &session) {
        (Some(_), _) => MachineStanding::Expelled,
        (None, None) => MachineStanding::NotConnected,
        (None, Some(session)) if session.lapsed => MachineStanding::Lapsed { heard_ms: session.heard_ms },
        (None, Some(session)) => MachineStanding::Up { heard_ms: session.heard_ms },
    };
    MachineReport {
        machine: machine.0,
        name,
        rights,
        standing,
        expelled: expelled.is_some(),
        session: session.is_some(),
        lapsed: session.is_some_and(|session| session.lapsed),
        unanswered_ms: session.and_then(|session| session.unanswered_ms),
    }
}

fn rights(path: String, rights: &Rights) -> RightsReport {
    RightsReport { path, read_only: rights.read_only, squash: rights.squash }
}

/// The name of an invitation for people.
fn invitation_id(token: &[u8; 32]) -> String {
    HEXLOWER.encode(&token[..4])
}

/// Waits for the directory's answer.
fn answered<T>(told: &Receiver<T>) -> Result<T, Silent> {
    told.recv_timeout(TIMEOUT).map_err(|_| Silent)
}

fn lease_line(report: directory::LeaseReport) -> LeaseLine {
    let directory::LeaseReport { field, name, standing, last_recall_ms, .. } = report;
    let right = |kind: Kind| match (field.is_black_box(), kind) {
        (false, Kind::Read) => LeaseRight::Read,
        (false, Kind::Touch) => LeaseRight::Touch,
        (false, Kind::Write) => LeaseRight::Write,
        (true, Kind::Read) => LeaseRight::OtherRead,
        (true, Kind::Touch) => LeaseRight::SelfWrite,
        (true, Kind::Write) => LeaseRight::SelfWriteAndOtherRead,
    };
    let standing = match standing {
        Standing::Holds { kind, left_ms } => LeaseStanding::Holds { lease: right(kind), left_ms },
        Standing::Recalled { keep, for_ms } => LeaseStanding::Recalled { keep: keep.map(right), for_ms },
        Standing::Waits { kind, for_ms } => LeaseStanding::Waits { lease: right(kind), for_ms },
        Standing::Excluded => LeaseStanding::Excluded,
    };
    LeaseLine { field: field.name().to_owned(), of: field.of(), machine: name, standing, last_recall_ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bridge_without_a_device_ends_at_this_machine() {
        let interfaces = tempfile::tempdir().unwrap();
        let make = |path: &str| std::fs::create_dir_all(interfaces.path().join(path)).unwrap();
        for path in
            ["eth0/device", "veth1", "docker0/brif/veth1", "br0/brif/veth1", "br0/brif/eth0", "virbr0/brif"]
        {
            make(path);
        }
        let ends = ["eth0", "veth1", "docker0", "br0", "virbr0", "none"]
            .map(|name| ends_here(interfaces.path(), name));
        assert_eq!(ends, [false, false, true, false, true, false]);
    }
}
