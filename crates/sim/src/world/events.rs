//! What is going to happen, and when.

use super::faults::{Mended, Repaired};
use super::group::Message;
use super::net::{Numbered, Way};
use client::{Invalidation, Upload};
use directory::ShareWork;
use ident::FileId;
use std::collections::BTreeMap;

/// Something that happens at its time. Machines are named by their place in the list of them.
#[derive(Debug)]
pub(super) enum Event {
    /// A packet arrives at the end of a connection.
    Arrives { at: usize, way: Way, connection: u64, packet: Numbered },
    /// A packet that was lost is sent again.
    Resends { at: usize, way: Way, connection: u64, packet: Numbered },
    /// A machine without a connection tries to get one.
    Dials(usize),
    /// A machine looks at its clock.
    Ticks(usize),
    /// A machine asks a server what changes nothing.
    Asks(usize),
    /// A program of a machine makes its next call.
    Calls(usize, usize),
    /// A machine's kernel (of that incarnation) forgets a file that lingers.
    Forgets(usize, u64, FileId),
    /// An upload of that life of the machine is stored.
    Uploads(usize, u64, Box<Upload>),
    /// This, which a machine (of that incarnation) had handed out below, goes.
    Yields(usize, u64, u64, Vec<Invalidation>, u32),
    /// A machine goes on after it was frozen.
    Thaws(usize),
    /// The earliest input that a lone server's log has is applied. Of which of its starts.
    Applies(u64),
    /// Servers look at their clocks.
    ServerTicks,
    /// A server starts again.
    ReplicaStarts(usize),
    /// The share server has done this for a server, in that start of it.
    Settles(usize, u64, Vec<ShareWork>),
    /// One replica hears another, as the members that they were.
    Replicates { from: usize, to: usize, members: [u64; 2], message: Message },
    /// A replica's disk has kept its log up to there, unless its end was replaced.
    Synced { at: usize, tail: u64, through: u64 },
    /// What was proposed to a leader becomes an entry.
    Appends(usize, u64),
    /// A server that is no member any more ends.
    Retires(usize),
    /// A leader says that it is there.
    Beats(usize, u64),
    /// It is looked who has not heard of a leader for too long.
    Watches,
    /// Something that went wrong between servers is well again.
    Repairs(Repaired),
    /// Something goes wrong.
    Fault,
    /// A server or a machine begins anew with the new program.
    Upgrades,
    /// Something that went wrong with a machine's link is well again.
    Mends(usize, Mended),
    /// What must hold at any time is looked at.
    Looks,
}

/// All of it, in order of time and then in the order in which it was added.
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

    /// When the next is.
    pub fn time(&self) -> Option<u64> {
        self.queue.first_key_value().map(|((time, _), _)| *time)
    }

    pub fn next(&mut self) -> Option<(u64, Event)> {
        self.queue.pop_first().map(|((time, _), event)| (time, event))
    }
}
