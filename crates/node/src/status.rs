//! The work of a machine and its server at present, for people.

use crate::membership::Membership;
use crate::server::Server;
use admin::{
    CallReport, CallWait, ClientReport, Hint, HostReport, LinkReport, LiveReport, Role, ServerReport,
    StatusReport, UnresponsiveReport,
};
use client::WaitReason;
use data_dir::quarantine;
use file_service::FileService;
use ident::FileId;
use shares::DatabaseError;
use wire::MachineId;

/// A recall that is answered sooner is not reported, ms.
const UNRESPONSIVE_MS: u64 = 1_000;

/// Reports what the machine is doing now.
pub(crate) fn status(membership: &Membership) -> StatusReport {
    let (client_host, server) = (membership.client_host(), membership.server());
    let figures = client_host.client_figures();
    let standing = server.as_deref().map(|server| server.group().standing());
    let leader = standing.as_ref().and_then(|standing| Some((standing, standing.leader?)));
    let leader = leader.and_then(|(standing, leader)| {
        let host = &standing.members.iter().find(|member| member.id == leader)?.host;
        Some(server.as_deref()?.name_of(MachineId(host.machine)))
    });
    let call = |wait: client::WaitReport| CallReport {
        call: wait.call.to_owned(),
        for_ms: wait.for_ms,
        waits_for: match wait.reason {
            WaitReason::Connection => CallWait::Connection,
            WaitReason::ContentRelease => CallWait::ContentRelease,
            WaitReason::Storing => CallWait::Storing,
            WaitReason::Space => CallWait::Space,
            WaitReason::Server => CallWait::Server,
        },
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
        data: client_host.salvage().data().display().to_string(),
        process: std::process::id(),
        uptime_s: client_host.uptime().as_secs(),
        files_known: figures.files_known,
        dirty_bytes: figures.dirty_bytes,
        operations_unsent: figures.operations_unsent,
        calls_waiting: figures.waits.into_iter().map(call).collect(),
        salvaged: client_host.salvage().count(),
        lacks_server: membership.lacks_its_server(),
        quarantined: quarantine::list(membership.dir()).iter().map(|dir| dir.display().to_string()).collect(),
        listens: membership.addresses().unwrap_or_default(),
        link,
        server: server.as_deref().map(server_report),
    }
}

/// Reports the calls and counts of now. With `watches`, operations in directories are counted from
/// now on for a while.
pub(crate) fn live(membership: &Membership, watches: bool) -> LiveReport {
    let (client_host, server) = (membership.client_host(), membership.server());
    if watches {
        client_host.watch();
    }
    let (leases, recalls_received) = client_host.leases_and_recalls();
    let path = |dir: &FileId| {
        let known = client_host.path(dir);
        let from_server = || {
            let server = server.as_deref()?;
            Some(server.path(dir))
        };
        known.or_else(from_server).unwrap_or_else(|| dir.to_string())
    };
    LiveReport {
        status: status(membership),
        client: ClientReport { leases, recalls_received },
        activity: client_host.activity().map(|activity| activity.report(path)).unwrap_or_default(),
        round_trips: membership.round_trips().report(),
    }
}

fn server_report(server: &Server) -> ServerReport {
    let group = server.group().status();
    let status = server.group().query(|directory, _| directory.status(group.time));
    let shares = server.shares().server();
    let unknown = |error: &DatabaseError| tracing::error!(%error, "how the shares stand is not known");
    let stored = shares.stored().inspect_err(unknown).ok();
    let hosts = server.share_host().standings().into_iter();
    let machines = server.machines();
    let hint = hint(machines.iter().filter(|machine| !machine.expelled).count(), server.servers().len());
    let unresponsive = machines.into_iter().filter_map(|machine| {
        let unanswered_ms = machine.unanswered_ms.filter(|ms| *ms >= UNRESPONSIVE_MS)?;
        Some(UnresponsiveReport { name: machine.name, unanswered_ms })
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
        store_repaired: group.store.repaired_bits,
        disk_full: group.lacks_room,
        scrub: server.scrub().report(shares).inspect_err(unknown).ok(),
        shares: stored.map(|stored| stored.shares),
        share_bytes: stored.map(|stored| stored.bytes),
        hosts: hosts.map(|(MachineId(machine), copies)| HostReport { machine, copies }).collect(),
        hint,
        traffic: server.traffic().report(),
    }
}

/// Returns a hint where the death of one machine stops the others, though there are enough machines
/// to take its place.
fn hint(machines: usize, servers: usize) -> Option<Hint> {
    (machines >= 3 && servers < 3).then_some(Hint::AddServers { machines, servers })
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
