//! Future events, by time.

use super::state::group::Message;
use super::state::link::{Numbered, Way};
use client::{Call, Invalidation, Upload};
use directory::ShareWork;
use ident::FileId;
use std::collections::BTreeMap;

/// A revocation that a kernel has not done yet.
#[derive(Clone, Debug)]
pub(super) struct Revoking {
    pub number: u64,
    pub what: Vec<Invalidation>,
    pub offered: Vec<Invalidation>,
    /// The times that a call kept a directory locked.
    pub tries: u32,
}

/// A fault of a machine's link that ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum LinkRepaired {
    /// A cut of one direction, or of both.
    Cut([bool; 2]),
    /// A slow link; the delay is what it was.
    Slow((u64, u64)),
}

/// A fault between servers that ends.
#[derive(Clone, Debug)]
pub(super) enum Repaired {
    /// A cut of these wires.
    Wires(Vec<(usize, usize)>),
    /// A slow disk of this server.
    Disk(usize),
    /// A full disk of this server.
    Room(usize),
    /// A stop of this server's process.
    Stopped(usize),
    /// A cut between a machine and one server.
    Astray { at: usize, server: usize, ways: [bool; 2] },
}

/// An event at its time. A machine's number here is its place in the list of machines.
#[derive(Debug)]
pub(super) enum Event {
    /// A packet arrives at the end of a connection.
    Arrives { at: usize, way: Way, connection: u64, packet: Numbered },
    /// A packet that was lost is sent again.
    Resends { at: usize, way: Way, connection: u64, packet: Numbered },
    /// A machine without a connection tries to get one.
    Dials(usize),
    /// A machine reads its clock.
    Ticks(usize),
    /// A machine sends a server a question that changes nothing.
    Asks(usize),
    /// A program of a machine makes its next call.
    Calls(usize, usize),
    /// A program whose call gave way makes it once more, on that incarnation of its machine.
    CallsAgain(usize, u64, usize, Box<Call>),
    /// A machine's kernel (of that incarnation) forgets a lingering file.
    Forgets(usize, u64, FileId),
    /// An upload of that incarnation of the machine is stored.
    Uploads(usize, u64, Box<Upload>),
    /// The kernel of a machine (of that incarnation) drops the entries and attributes that the
    /// client revokes.
    Revokes(usize, u64, Revoking),
    /// A frozen machine goes on.
    Thaws(usize),
    /// The earliest input in a lone server's log is applied. The number is that of the server's
    /// start.
    Applies(u64),
    /// Servers read their clocks.
    ServerTicks,
    /// A server starts again.
    ReplicaStarts(usize),
    /// The share server has done this work for a server, in that start of it.
    Settles(usize, u64, Vec<ShareWork>),
    /// A message from one replica reaches another. `members` are their numbers when it was sent.
    Replicates { from: usize, to: usize, members: [u64; 2], message: Message },
    /// A replica's disk has made its log durable up to there, unless the log's end was replaced.
    Synced { at: usize, tail: u64, up_to: u64 },
    /// A leader's proposals become an entry.
    Appends(usize, u64),
    /// A server that is no longer a member ends.
    Retires(usize),
    /// A leader sends its heartbeat.
    Beats(usize, u64),
    /// Replicas look whether they have waited too long for a leader.
    Watches,
    /// A fault between servers ends.
    Repairs(Repaired),
    /// A fault begins.
    Fault,
    /// A server or a machine starts the new program.
    Upgrades,
    /// A fault of a machine's link ends.
    RepairsLink(usize, LinkRepaired),
    /// The checks that hold at any time run.
    Looks,
}

/// All future events, in order of time and then in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Events {
    queue: BTreeMap<(u64, u64), Event>,
    added: u64,
}

impl Events {
    pub fn add(&mut self, time: u64, event: Event) {
        self.added += 1;
        self.queue.insert((time, self.added), event);
    }

    /// The time of the next event.
    pub fn time(&self) -> Option<u64> {
        self.queue.first_key_value().map(|((time, _), _)| *time)
    }

    pub fn next(&mut self) -> Option<(u64, Event)> {
        self.queue.pop_first().map(|((time, _), event)| (time, event))
    }
}
