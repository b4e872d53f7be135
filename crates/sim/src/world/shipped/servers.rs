//! The servers that ship, and all that connects them.

use super::disk::Disk;
use super::oracle::Oracle;
use super::wires::{self, Net};
use crate::host::Violation;
use crate::world::state::host::found;
use crate::world::weather::Mutation;
use parking_lot::Mutex;
use raft::{Group, Host, Life};
use rand_chacha::ChaCha12Rng;
use rand_core::SeedableRng;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::time::Instant;
use wire::ToClient;

/// The servers and all that connects them.
pub(crate) struct Shipped {
    pub time: Runtime,
    pub began: Instant,
    pub(super) net: Arc<Net>,
    pub told: Arc<Inbox>,
    pub servers: Vec<ShippedServer>,
    pub oracle: Oracle,
    pub restores_leader: bool,
    pub believes_members: bool,
    /// The latest member number.
    pub numbered: u64,
    /// The process that is at a change of members, by [`Changing`].
    pub changing: [Option<Arc<Life>>; 2],
}

/// A machine that serves.
pub(crate) struct ShippedServer {
    pub member: u64,
    pub(super) disk: Disk,
    pub life: Arc<Life>,
    /// The group as this server has it, once the server has started.
    pub group: Option<Arc<Group>>,
    /// Counts its starts.
    pub process: u64,
    /// Whether it led at the last look.
    pub led: bool,
    pub looked_at: Option<u64>,
    /// Its disk has lost or changed durable data: the server must not go on.
    pub damaged: bool,
    /// An older copy of its disk, and its member number then.
    pub(super) copy: Option<(u64, Disk)>,
    /// Its disk is such a copy, or was emptied, and the server does not know yet what it had
    /// promised since.
    pub forgot: bool,
    /// Its disk was put back during its membership. That may be found later, by a member that it
    /// did not reach at its start.
    pub was_put_back: bool,
    /// Whether it can see that its files are others.
    pub moved: bool,
    /// The leader has or had it among the members.
    pub was_member: bool,
    /// The members that it knew when its process ended.
    pub knew: Vec<raft::Member>,
    /// The address at which it listens.
    pub address: String,
    /// Time that it is away after a crash.
    pub pause: u64,
}

/// Reports of servers, in order: the server, its start, and the report.
#[derive(Default)]
pub(crate) struct Inbox {
    pub told: Mutex<VecDeque<(usize, u64, ServerEvent)>>,
    pub wake: Notify,
}

pub(crate) enum ServerEvent {
    Started(Arc<Group>),
    Refused(String),
    Event(raft::Event),
    /// Whether the server leads.
    Leads(bool),
    /// The change of members has ended, with success or not.
    Changed(Changing),
    /// The server no longer knows that it leads. The asker on that connection is to ask another
    /// server.
    Doubts {
        at: usize,
        connection: u64,
    },
    /// The answer to a machine's question over that connection. `committed` is the committed part
    /// of the log when the question came; `applied` is the part applied where it was answered.
    Answer {
        at: usize,
        connection: u64,
        answer: ToClient,
        committed: u64,
        applied: u64,
    },
}

impl ShippedServer {
    /// Its host entry: where it says that it is, on that machine.
    pub fn host(&self, at: usize) -> Host {
        let machine = at as u64 + 1;
        let name = format!("machine-{machine}");
        Host { machine, name, addresses: vec![self.address.clone()], ..Host::default() }
    }

    pub fn lacks_room_to_begin(&self) -> bool {
        self.disk.is_full() && !self.was_member
    }

    /// Fills its disk, or gives it room again.
    pub fn fills_disk(&self, full: bool) {
        self.disk.fills(full);
        self.life.fills_disk(full);
    }
}

impl Inbox {
    pub fn put(&self, at: usize, start: u64, told: ServerEvent) {
        self.told.lock().push_back((at, start, told));
        self.wake.notify_one();
    }
}

impl Shipped {
    /// So many servers, none of which has begun.
    pub fn new(servers: u64, seed: u64, lie: Option<Mutation>) -> Result<Shipped, Violation> {
        let time = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
        let time = time.map_err(|e| e.to_string())?;
        let chance = ChaCha12Rng::seed_from_u64(seed ^ 0x3175);
        let wires = vec![vec![(1, false); servers as usize]; servers as usize];
        let net = wires::NetState { chance, wires, loses: 0, members: BTreeMap::new() };
        let (began, lives) = {
            let _in = time.enter();
            (Instant::now(), (0..servers).map(|_| Life::new(0, 0)).collect::<Vec<_>>())
        };
        let server = |life| ShippedServer {
            member: 0,
            disk: Disk::default(),
            life,
            group: None,
            process: 0,
            led: false,
            looked_at: None,
            damaged: false,
            copy: None,
            forgot: false,
            was_put_back: false,
            moved: false,
            was_member: false,
            knew: Vec::new(),
            address: String::new(),
            pause: 0,
        };
        let servers: Vec<ShippedServer> = lives.into_iter().map(server).collect();
        if lie == Some(Mutation::DiskKeepsNothing) {
            servers.iter().for_each(|server| server.disk.lies());
        }
        let (directory, store) = found(0)?;
        Ok(Shipped {
            time,
            began,
            net: Arc::new(Net(Mutex::new(net))),
            told: Arc::default(),
            servers,
            oracle: Oracle::new(directory, store),
            restores_leader: lie == Some(Mutation::RestoresLeader),
            believes_members: lie == Some(Mutation::BelievesMembers),
            numbered: 0,
            changing: [None, None],
        })
    }

    /// The committed part of the log, as far as the simulation knows.
    pub fn committed(&self) -> u64 {
        self.oracle.entries.len() as u64
    }

    /// Whether some server's disk was put back or emptied and the others have not judged it yet.
    /// Other faults wait for that.
    pub fn is_in_doubt(&self) -> bool {
        self.servers.iter().any(|server| server.forgot)
    }

    /// The server that leads, as far as it knows; of several, the one with the latest term.
    pub fn leader(&self) -> Option<usize> {
        let groups = self.servers.iter().enumerate().filter_map(|(at, it)| Some((at, it.group.as_ref()?)));
        let leaders = groups.filter(|(_, group)| group.leads());
        leaders.max_by_key(|(_, group)| group.status().term).map(|(at, _)| at)
    }
}

/// The kind of a change of members: only one of each kind is under way at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changing {
    /// The wanted servers, and the servers' reports of themselves.
    Wanted,
    /// The voters.
    Voters,
}
