//! Processes of servers that run the shipped code. They start, maybe at another address; they stop
//! for a while and end. Disks rot while no process runs.

use super::disk::Disk;
use super::servers::ServerEvent;
use super::wires::{Member, Wires};
use crate::host::server::root;
use crate::world::World;
use crate::world::events::{Event, Repaired};
use raft::{FOUNDER, Group, GroupFiles, GroupHost, GroupId, GroupSettings, Life, MemberPlace};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use wire::Versions;

/// The directory of a server's files, and the mark of its durable log.
const DIR: &str = "/server";
const MARK: &str = "/server.mark";
/// One start in so many is at another address.
const MOVES: u64 = 4;
/// Number of writes and syncs within which a crash at one of them comes.
const CRASH_WITHIN: u64 = 40;
/// Small bounds, so that checkpoints, snapshots and new segments of the log come often.
const SETTINGS: GroupSettings =
    GroupSettings { memory_bytes: 8 << 20, checkpoint_after: Duration::from_secs(4), log_bytes: 256 << 10 };
/// The log's bytes in weather with full disks: small, so that the log is soon used up.
const SMALL_LOG_BYTES: u64 = 16 << 10;

impl World {
    /// Starts the server's process.
    pub(in crate::world) fn member_starts(&mut self, at: usize) {
        let replica = &mut self.group.replicas[at];
        (replica.up, replica.stopped_until) = (true, 0);
        let ppm = replica.rate_ppm as i64 - 1_000_000;
        let seed = self.below(u64::MAX);
        let moves = self.weather.changes > 0 && self.one_in(MOVES) && self.may_move(at);
        let shipped = &mut self.shipped;
        let _in = shipped.time.enter();
        let server = &mut shipped.servers[at];
        // Two processes never have the same files open: remains of an earlier one must not write
        // any more.
        server.disk.loses_process();
        server.life.end();
        server.life = Life::new(seed, ppm);
        if shipped.restores_leader {
            server.life.restores_leader();
        }
        if shipped.believes_members {
            server.life.believes();
        }
        server.life.fills_disk(server.disk.is_full());
        server.process += 1;
        (server.group, server.led, server.looked_at) = (None, false, None);
        let start = server.process;
        let (life, disk, told) = (server.life.clone(), server.disk.held(), shipped.told.clone());
        if moves || server.address.is_empty() {
            server.address = format!("{at}:{start}");
        }
        let (host, address) = (server.host(at), server.address.clone());
        let place = MemberPlace {
            member: server.member,
            host,
            // Its directory says that it has founded the group before.
            founds: server.member == FOUNDER && shipped.oracle.entries.is_empty(),
            knows: Versions::KNOWN,
        };
        let files = GroupFiles { dir: DIR.into(), mark: Some(MARK.into()), moved: server.moved };
        let small = GroupSettings { log_bytes: SMALL_LOG_BYTES, ..SETTINGS };
        let settings = if self.weather.full_disks > 0 { small } else { SETTINGS };
        let net = shipped.net.clone();
        let wires = Arc::new(Wires { from: at, net: net.clone() });
        self.shipped.servers[at].life.spawn(async move {
            let (teller, started_as) = (told.clone(), Arc::new(OnceLock::<Weak<Group>>::new()));
            let this = started_as.clone();
            let deliver = Box::new(move |event| {
                let told = match event {
                    // The present standing. A server that leads again by the time of the look has
                    // dropped its inputs.
                    raft::Event::Standing => {
                        let group = this.get().and_then(Weak::upgrade);
                        ServerEvent::Leads(group.is_some_and(|group| group.leads()))
                    }
                    event => ServerEvent::Event(event),
                };
                teller.put(at, start, told);
            });
            let started = async {
                let host = GroupHost::start(disk, files, settings)?;
                let (group, works) = host.start_group(GroupId::FIRST, root(), place, wires, deliver).await?;
                Ok::<_, raft::GroupError>((host, group, works))
            };
            match started.await {
                Ok((host, group, works)) => {
                    let group = Arc::new(group);
                    let _ = started_as.set(Arc::downgrade(&group));
                    group.listens_at(vec![address.clone()]);
                    net.0.lock().members.insert(at, Member { address, life, host });
                    group.begin();
                    told.put(at, start, ServerEvent::Started(group));
                    works.await;
                }
                Err(error) => told.put(at, start, ServerEvent::Refused(error.to_string())),
            }
        });
    }

    /// Ends the server's process, now or within its next writes. It starts again after `pause`.
    pub(in crate::world) fn member_crashes(&mut self, at: usize, pause: u64) {
        if !self.group.replicas[at].up {
            return;
        }
        self.shipped.servers[at].pause = pause;
        if self.one_in(2) {
            let after = self.below(CRASH_WITHIN);
            let server = &self.shipped.servers[at];
            server.disk.ends_after(after, &server.life);
        } else {
            let server = &self.shipped.servers[at];
            server.disk.loses_process();
            server.life.end();
        }
    }

    /// Asks the server to hand over.
    pub(in crate::world) fn member_hands_over(&mut self, at: usize) {
        if let Some(group) = &self.shipped.servers[at].group {
            // The world hears of the end as clients do.
            drop(group.hand_over());
            self.happened.handed_over += 1;
            self.notes(|| format!("server {at} is asked to hand over"));
        }
    }

    /// The server's disk loses or changes durable data while the process is not running.
    pub(super) fn member_rots(&mut self, at: usize) {
        let seed = self.below(u64::MAX);
        let server = &mut self.shipped.servers[at];
        if server.disk.rots(seed) {
            server.damaged = true;
            self.happened.rotten += 1;
            self.notes(|| format!("the disk of server {at} rots"));
        }
    }

    /// Copies the server's disk, as a crash now would leave it. Trap: a copy from a time at which
    /// the server was the only one knows of no other that could be asked. Such a server goes on
    /// until a client or another server tells it what it has forgotten (docs/internals/disks.md),
    /// so no such copy is made.
    pub(super) fn member_is_copied(&mut self, at: usize) {
        let seed = self.below(u64::MAX);
        let server = &mut self.shipped.servers[at];
        let is_other = |member: &raft::Member| member.votes && member.id != server.member;
        if !server.group.as_ref().is_some_and(|group| group.standing().members.iter().any(is_other)) {
            return;
        }
        let copy = server.disk.copied();
        copy.crashes(seed);
        server.copy = Some((server.member, copy));
        self.notes(|| format!("the disk of server {at} is copied"));
    }

    /// Puts an older copy in the place of the disk, or an empty disk, before the process starts.
    pub(super) fn member_is_put_back(&mut self, at: usize) {
        let (emptied, seen) = (self.one_in(3), self.one_in(2));
        let server = &mut self.shipped.servers[at];
        let copy = server.copy.take().filter(|(member, _)| *member == server.member);
        let Some(disk) = (if emptied { Some(Disk::default()) } else { copy.map(|(_, copy)| copy) }) else {
            return;
        };
        disk.fills(server.disk.is_full());
        // A disk that goes back as a whole has the same files.
        (server.disk, server.forgot, server.moved) = (disk, true, seen);
        server.was_put_back = true;
        self.happened.put_back += 1;
        let what = if emptied { "is emptied" } else { "is an older copy" };
        self.notes(|| format!("the disk of server {at} {what}"));
    }

    /// The process has ended, with all its connections.
    pub(super) fn member_ended(&mut self, at: usize) {
        self.happened.restarts += 1;
        let seed = self.below(u64::MAX);
        self.notes(|| format!("server {at} crashes"));
        let replica = &mut self.group.replicas[at];
        replica.up = false;
        replica.start += 1;
        replica.host = Default::default();
        let server = &mut self.shipped.servers[at];
        server.process += 1;
        server.disk.crashes(seed);
        server.knew = server.group.take().map(|group| group.standing().members).unwrap_or_default();
        server.led = false;
        self.shipped.net.0.lock().members.remove(&at);
        let pause = server.pause;
        self.loses_server(at);
        self.later(pause, Event::ReplicaStarts(at));
    }

    /// Stops the server until then, as if no time had passed.
    pub(in crate::world) fn member_stops(&mut self, at: usize, ms: u64) {
        if self.group.replicas[at].stopped_until <= self.now {
            self.shipped.servers[at].life.stop();
            self.notes(|| format!("server {at} stops for {ms} ms"));
            self.group.replicas[at].stopped_until = self.now + ms;
            self.later(ms, Event::Repairs(Repaired::Stopped(at)));
        }
    }

    pub(in crate::world) fn member_goes_on(&mut self, at: usize) {
        self.notes(|| format!("server {at} goes on"));
        self.shipped.servers[at].life.go_on();
    }
}
