//! Raises the cluster's version. The leader does so as soon as every server is up and knows the
//! next version, and no machine speaks a version that this drops.

use crate::server::Server;
use admin::{VersionReport, VersionWait};
use directory::Input;
use raft::{Member, Standing};
use std::time::Duration;
use wire::Version;

/// A server that stayed silent for this long may come back with an older program.
const THERE: Duration = Duration::from_secs(2);

impl Server {
    /// Raises the version, if no machine prevents it.
    pub(crate) fn tend_version(&self) {
        let report = self.versions();
        if self.raises() && report.known > report.cluster && report.waits_for.is_empty() {
            self.group().propose(Input::Raise { to: Version(report.cluster).next() });
        }
    }

    /// Returns the versions in use.
    pub(crate) fn versions(&self) -> VersionReport {
        let (cluster, known) = (self.group().version(), self.knows().newest);
        let older = self.group().query(|directory, store| directory.older_machines(store));
        let older: Vec<String> = older.into_iter().map(|(_, name)| name).collect();
        let mut waits_for = Vec::new();
        if known > cluster && self.group().leads() {
            waits_for = keeping(cluster.next(), &self.group().standing(), |id| self.speaks(id));
            waits_for.extend(older.iter().map(|name| VersionWait::MachineOlder { machine: name.clone() }));
        }
        VersionReport { cluster: cluster.0, known: known.0, older, waits_for }
    }

    /// Returns the newest version that a member of the group speaks, as far as this one knows.
    pub(crate) fn speaks(&self, member: u64) -> Option<Version> {
        let itself = member == self.group().member();
        if itself { Some(self.knows().newest) } else { self.group().speaks(member) }
    }
}

/// Returns the servers that keep the version from becoming `next`, as the leader knows them.
/// `speaks` returns the version that each speaks with the leader.
fn keeping(next: Version, standing: &Standing, speaks: impl Fn(u64) -> Option<Version>) -> Vec<VersionWait> {
    let keeps = |member: &Member| {
        let there = Some(member.id) == standing.leader || member.heard.is_some_and(|at| at.elapsed() < THERE);
        let server = member.host.name.clone();
        match speaks(member.id).filter(|_| there) {
            None => Some(VersionWait::ServerAway { server }),
            Some(version) if version < next => Some(VersionWait::ServerOlder { server, speaks: version.0 }),
            Some(_) => None,
        }
    };
    standing.members.iter().filter_map(keeps).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Machine, MachineSettings};
    use raft::Host;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
    use std::time::Instant;
    use wire::{ToClient, Versions};

    const OLD: Version = Version::NEWEST;
    const NEW: Version = OLD.next();

    /// A server that leads, one that follows, and one that is away, each with the version that it
    /// speaks.
    #[test]
    fn every_server_has_to_be_there_and_to_know_the_next() {
        let heard = [None, Some(Instant::now()), Instant::now().checked_sub(2 * THERE)];
        let member = |id: usize| {
            let host = Host { name: format!("s{id}"), ..Host::default() };
            Member { id: id as u64, host, votes: true, reached: None, heard: heard[id] }
        };
        let kept = |members: &[usize], speaks: [Option<Version>; 3]| {
            let members = members.iter().copied().map(member).collect();
            let standing = Standing { members, leader: Some(0), leads: true, alone: false };
            keeping(NEW, &standing, |id| speaks[id as usize])
        };
        let none: [VersionWait; 0] = [];
        let (older, away) = (
            |server: &str| VersionWait::ServerOlder { server: server.to_owned(), speaks: OLD.0 },
            |server: &str| VersionWait::ServerAway { server: server.to_owned() },
        );
        assert_eq!(kept(&[0], [Some(NEW), None, None]), none);
        assert_eq!(kept(&[0, 1], [Some(NEW), Some(NEW.next()), None]), none);
        assert_eq!(kept(&[0, 1], [Some(OLD), Some(OLD), None]), [older("s0"), older("s1")]);
        // The leader has not heard of it, or not for too long: it may come back older.
        assert_eq!(kept(&[0, 1], [Some(NEW), None, None]), [away("s1")]);
        assert_eq!(kept(&[0, 1, 2], [Some(NEW); 3]), [away("s2")]);
    }

    /// Starts a machine whose program knows these versions.
    fn start(dir: &Path, knows: Versions, raises: bool) -> Machine {
        let group = crate::GroupSettings {
            memory_bytes: 8 << 20,
            checkpoint_after: Duration::from_secs(60),
            log_bytes: 32 << 20,
        };
        let settings = MachineSettings { group, knows, raises, ..MachineSettings::default() };
        Machine::start(dir, "a test", settings).unwrap_or_else(|error| panic!("{error}"))
    }

    fn version(machine: &Machine) -> Version {
        Version(machine.server().unwrap().versions().cluster)
    }

    /// Returns why this program does not start on `dir`, with all causes.
    fn refusal(dir: &Path) -> String {
        let refused = Machine::start(dir, "a test", MachineSettings::default()).err().unwrap();
        let causes = std::iter::successors(Some(&refused as &dyn std::error::Error), |error| error.source());
        causes.map(|error| error.to_string()).collect::<Vec<_>>().join(": ")
    }

    #[test]
    fn a_lone_server_raises_the_version_unless_it_is_held_or_only_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let machine = start(dir.path(), Versions::KNOWN, true);
        let report = machine.server().unwrap().versions();
        let (older, waits_for) = (Vec::new(), Vec::new());
        assert_eq!(report, VersionReport { cluster: OLD.0, known: OLD.0, older, waits_for });
        machine.stop().unwrap();
        for (knows, raises) in [(Versions::WITH_NEXT.held_to(OLD), true), (Versions::WITH_NEXT, false)] {
            let machine = start(dir.path(), knows, raises);
            machine.server().unwrap().tend_version();
            machine.stop().unwrap();
            // This program can come back until it is raised.
            start(dir.path(), Versions::KNOWN, true).stop().unwrap();
        }
        let machine = start(dir.path(), Versions::WITH_NEXT, true);
        let told = Arc::new(AtomicU16::new(0));
        let last = told.clone();
        machine.tap(move |message| {
            if let ToClient::Resumed { version, .. } = message {
                last.store(version.0, SeqCst);
            }
        });
        while version(&machine) < NEW || told.load(SeqCst) < NEW.0 {
            std::thread::sleep(Duration::from_millis(10));
        }
        machine.stop().unwrap();
        let why = refusal(dir.path());
        assert!(why.contains("the cluster is at version 2, and this leasehold knows version 1"), "{why}");
        assert!(why.contains("server") && why.contains("install a newer one on this machine"), "{why}");
        start(dir.path(), Versions::WITH_NEXT, true).stop().unwrap();
    }
}
