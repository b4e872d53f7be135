//! The report of `leasehold status`.

use crate::membership::Membership;
use crate::quarantine;
use crate::round_trips::RoundTripReport;
use crate::scrub::ScrubReport;
use crate::server::Server;
use crate::traffic::TrafficReport;
use crate::upgrade::VersionReport;
use file_service::ActivityReport;
use file_service::FileService;
use ident::FileId;
use serde::{Deserialize, Serialize};
use wire::{MachineId, ShareStanding};

/// What a machine is doing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatusReport {
    /// Always true in an answer.
    pub up: bool,
    /// The program's version.
    pub version: String,
    /// The machine's number in the cluster.
    pub machine: u64,
    /// Its name; empty where only a server knows that.
    pub name: String,
    /// What it is for the cluster.
    pub role: Role,
    /// The name of the server that leads, if this machine is a server and knows it.
    pub leader: Option<String>,
    /// The data directory.
    pub data: String,
    /// Where the file system appears.
    pub mounted_on: Option<String>,
    /// The process.
    pub process: u32,
    /// How long it has been up, seconds.
    pub uptime_s: u64,
    /// Files that this machine's client has metadata of.
    pub files_known: usize,
    /// Content that is not stored yet, bytes.
    pub dirty_bytes: usize,
    /// Operations that the server has not acknowledged.
    pub operations_unsent: usize,
    /// Calls of programs that wait, the oldest first.
    pub calls_waiting: Vec<CallReport>,
    /// Salvages that are kept: `leasehold salvage list`.
    pub salvaged: usize,
    /// Quarantined data of servers on this machine.
    pub quarantined: Vec<String>,
    /// Where others are likely to reach this machine's server.
    pub listens: Vec<String>,
    /// The connection to the server, of a machine without one.
    pub link: Option<LinkReport>,
    /// The server, of the machine that has it.
    #[serde(flatten)]
    pub server: Option<ServerReport>,
}

/// What a machine is for the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It has no server.
    Client,
    /// Its server follows another's.
    Follower,
    /// Its server leads.
    Leader,
}

/// A program's call that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallReport {
    /// What was called.
    pub call: String,
    /// For how long it has waited, ms.
    pub for_ms: u64,
    /// What it waits for.
    pub waits_for: String,
}

/// The data of `leasehold top` and of the metrics.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LiveReport {
    /// What the machine is doing.
    pub status: StatusReport,
    /// Its client's leases and recalls.
    pub client: ClientReport,
    /// The operations at its front door.
    pub activity: ActivityReport,
    /// Round trips to the machines that it is connected to.
    pub round_trips: Vec<RoundTripReport>,
}

/// A client's leases and recalls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientReport {
    /// Leases that it holds.
    pub leases: usize,
    /// Recalls that it has received.
    pub recalls_received: u64,
}

/// A connection to the server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkReport {
    /// Where the server is.
    pub server: String,
    /// How long the connection has been up, or down, seconds.
    pub since_s: u64,
    /// Why it is down; up if absent.
    pub down: Option<String>,
}

/// What a server is doing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerReport {
    /// Which versions are in use.
    pub version_in_use: VersionReport,
    /// Files in the file system.
    pub files: u64,
    /// Sessions of clients at this server, lapsed ones included.
    pub sessions: usize,
    /// Lapsed sessions: they keep their leases until another machine needs these.
    pub sessions_lapsed: usize,
    /// Pending requests for leases.
    pub requests_waiting: usize,
    /// Machines that have not answered a recall, and for how long, in words.
    pub unresponsive: Vec<String>,
    /// Bytes of the disk.
    pub space_total: u64,
    /// Free bytes.
    pub space_free: u64,
    /// Index of the last applied log entry.
    pub applied: u64,
    /// Log that a start would replay, bytes.
    pub log_bytes: u64,
    /// How often the log was made durable since the start: one fdatasync each.
    pub log_flushes: u64,
    /// Bytes proposed and not applied yet.
    pub backlog_bytes: usize,
    /// Bytes of the server's rows on disk.
    pub store_bytes: u64,
    /// Flipped bits that were found in them, and repaired, since the start.
    pub store_mended: u64,
    /// The disk is full: rows wait in memory and in the log until there is room.
    pub disk_full: bool,
    /// How the scrub stands.
    pub scrub: ScrubReport,
    /// Stored shares.
    pub shares: u64,
    /// Bytes of the stored shares.
    pub share_bytes: u64,
    /// The hosts of shares.
    pub hosts: Vec<HostReport>,
    /// What would make the cluster safer, in words.
    pub hint: Option<String>,
    /// Messages since the start.
    #[serde(flatten)]
    pub traffic: TrafficReport,
}

/// A host of shares.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostReport {
    /// Its number.
    pub machine: u64,
    /// How its copies stand; nothing if it does not answer.
    pub copies: Option<ShareStanding>,
}

/// A recall that is answered sooner is not reported, ms.
const UNRESPONSIVE_MS: u64 = 1_000;

impl StatusReport {
    /// Makes the report of now.
    pub(crate) fn of(membership: &Membership) -> StatusReport {
        let (engine, server) = (membership.engine(), membership.server());
        let figures = engine.client_figures();
        let standing = server.as_deref().map(|server| server.group().standing());
        let leader = standing.as_ref().and_then(|standing| Some((standing, standing.leader?)));
        let leader = leader.and_then(|(standing, leader)| {
            let host = &standing.members.iter().find(|member| member.id == leader)?.host;
            Some(server.as_deref()?.name_of(MachineId(host.machine)))
        });
        let call = |wait: client::WaitReport| CallReport {
            call: wait.call.to_owned(),
            for_ms: wait.for_ms,
            waits_for: wait.what.to_owned(),
        };
        let link = membership.link_status().map(|link| LinkReport {
            server: link.server,
            since_s: link.since.elapsed().as_secs(),
            down: link.down,
        });
        StatusReport {
            up: true,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: membership.machine().0,
            name: membership.name(),
            role: match &standing {
                None => Role::Client,
                Some(standing) if standing.leads => Role::Leader,
                Some(_) => Role::Follower,
            },
            leader,
            mounted_on: membership.mounted_on().get().map(|dir| dir.display().to_string()),
            data: engine.salvage().data().display().to_string(),
            process: std::process::id(),
            uptime_s: engine.uptime().as_secs(),
            files_known: figures.files_known,
            dirty_bytes: figures.dirty_bytes,
            operations_unsent: figures.operations_unsent,
            calls_waiting: figures.waits.into_iter().map(call).collect(),
            salvaged: engine.salvage().count(),
            quarantined: quarantine::list(membership.dir())
                .iter()
                .map(|dir| dir.display().to_string())
                .collect(),
            listens: membership.addresses().unwrap_or_default(),
            link,
            server: server.as_deref().map(ServerReport::of),
        }
    }
}

impl LiveReport {
    /// Makes the report of now. With `watches`, operations in directories are counted from now on
    /// for a while.
    pub(crate) fn of(membership: &Membership, watches: bool) -> LiveReport {
        let (engine, server) = (membership.engine(), membership.server());
        if watches {
            engine.watch();
        }
        let path = |dir: &FileId| {
            let known = engine.path(dir);
            let from_server = || {
                let server = server.as_deref()?;
                Some(server.group().query(|directory, store| directory.path(store, dir)))
            };
            known.or_else(from_server).unwrap_or_else(|| dir.to_string())
        };
        LiveReport {
            status: StatusReport::of(membership),
            client: engine.client_report(),
            activity: engine.activity().map(|activity| activity.report(path)).unwrap_or_default(),
            round_trips: membership.round_trips().report(),
        }
    }
}

impl ServerReport {
    fn of(server: &Server) -> ServerReport {
        let group = server.group().status();
        let status = server.group().query(|directory, _| directory.status(group.time));
        let stored = server.shares().server().stored().unwrap_or_default();
        let hosts = server.share_host().standings().into_iter();
        let machines = server.machines();
        let hint = hint(machines.iter().filter(|machine| !machine.expelled).count(), server.servers().len());
        let unresponsive = machines.into_iter().filter_map(|machine| {
            let ms = machine.unanswered_ms.filter(|ms| *ms >= UNRESPONSIVE_MS)?;
            Some(format!("{} has not answered a recall for {:.1} s", machine.name, ms as f64 / 1e3))
        });
        ServerReport {
            version_in_use: server.versions(),
            files: status.files,
            sessions: status.sessions,
            sessions_lapsed: status.lapsed,
            requests_waiting: status.waiting,
            unresponsive: unresponsive.collect(),
            space_total: status.space.total,
            space_free: status.space.free,
            applied: group.applied,
            log_bytes: group.log_bytes,
            log_flushes: group.log_flushes,
            backlog_bytes: group.backlog_bytes,
            store_bytes: group.store.file_bytes,
            store_mended: group.store.mended,
            disk_full: group.lacks_room,
            scrub: server.scrub().report(server.shares().server()).unwrap_or_default(),
            shares: stored.shares,
            share_bytes: stored.bytes,
            hosts: hosts.map(|(MachineId(machine), copies)| HostReport { machine, copies }).collect(),
            hint,
            traffic: server.traffic().report(),
        }
    }
}

/// Returns a hint where the death of one machine stops the others, though there are enough machines
/// to take its place.
fn hint(machines: usize, servers: usize) -> Option<String> {
    let says = |servers: &str| {
        format!(
            "{machines} machines have {servers}: with three any one may die (leasehold server add MACHINE)"
        )
    };
    match servers {
        0 | 1 if machines >= 3 => Some(says("one server")),
        2 if machines >= 3 => Some(says("two servers, one of which must not die")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_could_have_three_servers_is_told_so() {
        let hints = |machines, servers| hint(machines, servers).is_some();
        assert!(hints(3, 1) && hints(9, 2));
        assert!(!hints(1, 1) && !hints(2, 1) && !hints(2, 2) && !hints(3, 3));
    }
}
