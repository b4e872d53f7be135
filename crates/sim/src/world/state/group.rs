//! The replicas of a group, the wires between them, and their messages.

use super::members::Members;
use crate::world::log::{LogPlace, RaftEntry};
use crate::world::replica::{Checkpoint, Replica};
use directory::{Directory, MemoryStore};
use lease::Time;
use std::collections::BTreeMap;
use std::rc::Rc;
use wire::Versions;

/// The replicas and the wires between them.
pub(crate) struct Group {
    /// By machine: servers, and machines that may become servers.
    pub replicas: Vec<Replica>,
    pub wires: Vec<Wire>,
    /// The state of a newcomer, and the next member number.
    pub founding: Checkpoint,
    pub next: u64,
    /// For members that lost their disks: the server, and the index up to which it had the log.
    pub lost: BTreeMap<u64, (usize, u64)>,
}

/// The wire from one replica to another.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    /// Delay of every message, ms: this at least, and twice as much at most.
    pub delay: u64,
    /// Number of faults that cut this wire.
    pub cut: u64,
    /// Arrival of the latest message. Messages keep their order.
    pub arrives_at: u64,
}

/// A message between replicas.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// From the leader of `term`: entries that follow the place `before`, and the index `commit` up
    /// to which all is committed.
    Append { term: u64, round: u64, before: (u64, u64), entries: Vec<Rc<RaftEntry>>, commit: u64 },
    /// The same, with a checkpoint for all entries up to some place.
    Install { term: u64, round: u64, checkpoint: Checkpoint },
    /// The follower has the log on disk up to this index; or it needs the log from this index on.
    Appended { term: u64, round: u64, matched: Result<u64, u64> },
}

impl Message {
    pub fn term(&self) -> u64 {
        match self {
            Message::Append { term, .. } | Message::Install { term, .. } | Message::Appended { term, .. } => {
                *term
            }
        }
    }
}

impl Group {
    /// So many replicas with this state, of which the first `servers` serve.
    pub fn new(
        servers: usize,
        replicas: usize,
        directory: &Directory,
        store: &MemoryStore,
        time: Time,
    ) -> Group {
        let place = LogPlace { index: 0, term: 0, time };
        let members = Rc::new(Members::of(0..servers as u64));
        let founding = Checkpoint { place, members, rows: Rc::new(store.clone().into()) };
        let replica = |at: usize| {
            let replica = Replica::new(directory.clone(), founding.clone(), at as u64, Versions::KNOWN);
            let serves = at < servers;
            Replica { serves, up: serves, ..replica }
        };
        let wire = Wire { delay: 1, cut: 0, arrives_at: 0 };
        // Replicas that do not serve yet have their numbers, too.
        let next = replicas as u64;
        let (replicas, wires) = ((0..replicas).map(replica).collect(), vec![wire; replicas * replicas]);
        Group { next, replicas, wires, founding, lost: BTreeMap::new() }
    }

    /// The server begins anew, with nothing and another number, and a program that knows these
    /// versions; its process is not there yet.
    pub fn renews(&mut self, at: usize, knows: Versions) {
        let old = &self.replicas[at];
        self.lost.insert(old.member, (at, old.durable));
        let directory = old.directory.clone();
        let new = Replica::new(directory, self.founding.clone(), self.next, knows);
        self.next += 1;
        let Replica { leaves, start, tail, rate_ppm, checkpoint_at, .. } = *old;
        let (start, tail) = (start + 1, tail + 1);
        self.replicas[at] = Replica { up: false, leaves, start, tail, rate_ppm, checkpoint_at, ..new };
    }

    /// The server that has this member number, unless it lost its disk as that member.
    pub fn at(&self, member: u64) -> Option<usize> {
        self.replicas.iter().position(|replica| replica.member == member)
    }

    pub fn replica(&self, member: u64) -> Option<&Replica> {
        self.at(member).map(|at| &self.replicas[at])
    }

    /// The server that has or had this member number.
    pub fn server_of(&self, member: u64) -> Option<usize> {
        self.at(member).or_else(|| self.lost.get(&member).map(|(at, _)| *at))
    }

    /// Another server, which a machine may try next.
    pub fn next_after(&self, server: usize) -> usize {
        let all = self.replicas.len();
        let mut others = (1..=all).map(|next| (server + next) % all);
        others.find(|at| self.replicas[*at].serves).unwrap_or(server)
    }

    /// Whether there is one voter only: no elections and no messages ([`super::lone`]).
    pub fn is_lone(&self) -> bool {
        self.replicas.len() == 1
    }

    /// Whether any replica is up.
    pub fn is_up(&self) -> bool {
        self.replicas.iter().any(|replica| replica.up)
    }

    pub fn wire(&mut self, from: usize, to: usize) -> &mut Wire {
        let at = from * self.replicas.len() + to;
        &mut self.wires[at]
    }

    /// Whether messages pass both ways between the two.
    pub fn are_joined(&mut self, one: usize, other: usize) -> bool {
        one == other || self.wire(one, other).cut == 0 && self.wire(other, one).cut == 0
    }

    pub fn heal(&mut self) {
        self.wires.iter_mut().for_each(|wire| wire.cut = 0);
        self.replicas.iter_mut().for_each(|replica| replica.disk_ms = 0);
    }

    /// The replica that leads in the latest term.
    pub fn leader(&self) -> Option<usize> {
        let leads = self.replicas.iter().enumerate().filter(|(_, replica)| replica.leads.is_some());
        leads.max_by_key(|(_, replica)| replica.term).map(|(at, _)| at)
    }

    /// Whether all proposals are committed, and applied by all.
    pub fn is_idle(&self) -> bool {
        let Some(leader) = self.leader().and_then(|at| self.replicas.get(at)) else { return false };
        let last = leader.log.last().index;
        let idle = leader.leads.as_ref().is_some_and(|leads| leads.is_idle());
        let mut serving = self.replicas.iter().filter(|replica| replica.serves);
        idle && serving.all(|replica| replica.up && replica.applied == last)
    }
}
