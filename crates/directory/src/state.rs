//! The state that is no file's own, cut by what it belongs to: the cluster, the server, the region.
//!
//! Each part has rows of its own, and each session has one. All of it is in memory, and changes
//! with nearly every input. So it is written by [`crate::Directory::checkpoint`], and between two
//! checkpoints the log has it. A checkpoint writes the rows that changed since the last one.

use crate::cluster::in_use::{InUse, known_to};
use crate::cluster::registry::Changes;
use crate::joint::JointOperations;
use crate::paths::PathLeases;
use crate::regions::Regions;
use crate::requests::contention::Contention;
use crate::requests::pending::PendingRequests;
use crate::requests::walks::Walks;
use crate::requests::write_through::WriteThrough;
use crate::rows::keys::{RowKey, Table};
use crate::rows::machines::Enrolment;
use crate::rows::record::exact;
use crate::sessions::session::Sessions;
use crate::{Corrupt, Fault, Store};
use ident::{FileId, ServerId};
use lease::{Released, SessionId, Time};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use wire::{MachineId, Versions};

/// The whole of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryState {
    pub cluster: ClusterState,
    pub server: ServerState,
    pub region: RegionState,
}

/// State that there is once in the cluster, however many servers it has. Machines, invitations,
/// authorities and servers have rows of their own. The root server has it, and other servers have
/// copies of a part ([`crate::cluster::registry`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterState {
    /// Stands first: the rest of the row may differ between versions.
    pub in_use: InUse,
    /// The counts of recorded machines, invitations and servers.
    pub enrolment: Enrolment,
    /// The changes of the registry, as far as this server knows of them.
    pub changes: Changes,
}

/// A server's knowledge of its clients, whatever its region is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ServerState {
    pub regions: Regions,
    pub sessions: Sessions,
    /// Departed sessions that may still be stuck at having files open, or have them locked: others
    /// see that, or it is not yet examined.
    pub departed: BTreeSet<SessionId>,
    /// Sessions that have, or had, locks that were reported to others, who may be waiting for them.
    pub lockers: BTreeSet<SessionId>,
    /// Machines whose sessions were ended for not answering, and when that last happened.
    pub deaf: BTreeMap<MachineId, Time>,
    /// When the latest leader began.
    pub led: Time,
    /// When it was last looked whose time to answer is up.
    pub looked: Time,
    /// Running hash of all changes to rows.
    pub digest: u64,
    #[serde(skip)]
    pub joint: JointOperations,
    #[serde(skip)]
    pub paths: PathLeases,
}

/// State of a region's files beside their rows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RegionState {
    /// Files in all.
    pub files: u64,
    /// Dead files that have rows left.
    pub dying: u64,
    /// The row at which the search for files that are to go and have no opener any more goes on;
    /// absent if none is under way.
    pub sweep: Option<Vec<u8>>,
    /// The departed session whose files are examined next, and the row to begin at; absent if there
    /// is none.
    pub departed_next: Option<(SessionId, Option<Vec<u8>>)>,
    #[serde(skip)]
    pub pending: PendingRequests,
    #[serde(skip)]
    pub contention: Contention,
    /// Content that is write-through.
    #[serde(skip)]
    pub write_through: WriteThrough,
    #[serde(skip)]
    pub walks: Walks,
}

impl DirectoryState {
    /// The state of a new server, with so many files. Inodes are numbered from `next_inode` on.
    pub fn new(server: ServerId, cluster: ClusterState, (files, next_inode): (u64, u64)) -> DirectoryState {
        let server = ServerState {
            regions: Regions::new(server),
            sessions: Sessions::new(server, next_inode),
            departed: BTreeSet::new(),
            lockers: BTreeSet::new(),
            deaf: BTreeMap::new(),
            led: Time::default(),
            looked: Time::default(),
            digest: 0,
            joint: JointOperations::new(server),
            paths: PathLeases::default(),
        };
        let region = RegionState {
            files,
            dying: 0,
            sweep: None,
            departed_next: None,
            pending: PendingRequests::default(),
            contention: Contention::default(),
            write_through: WriteThrough::default(),
            walks: Walks::default(),
        };
        DirectoryState { cluster, server, region }
    }

    /// The state as of the last checkpoint, for a program that knows these versions. The cluster's
    /// version comes first, since only a program that knows it can read the rest.
    pub fn read(store: &dyn Store, known: Versions) -> Result<DirectoryState, Fault> {
        let cluster = ClusterState::read(store, known)?;
        let (mut server, sessions): (ServerState, u64) = read(store, Table::Server)?;
        server.sessions = server.sessions.with(read_sessions(store)?);
        if server.sessions.all.len() as u64 != sessions {
            return Err(Corrupt::at(&Table::Session.key(&[]), "number of sessions").into());
        }
        if !server.regions.have_the_root() {
            return Err(Corrupt::at(&Table::Server.key(&[]), "regions").into());
        }
        server.joint = read(store, Table::Joint)?;
        server.paths = read(store, Table::Paths)?;
        let mut region: RegionState = read(store, Table::Region)?;
        region.pending = read(store, Table::Requests)?;
        region.contention = read(store, Table::Contention)?;
        region.write_through = read(store, Table::WriteThrough)?;
        region.walks = read(store, Table::Walks)?;
        Ok(DirectoryState { cluster, server, region })
    }

    /// All rows of the state.
    fn rows(&self) -> BTreeMap<RowKey, Vec<u8>> {
        let DirectoryState { cluster, server, region } = self;
        let sessions = &server.sessions.all;
        let single = [
            (Table::Cluster, wire::encode(cluster)),
            (Table::Server, wire::encode(&(server, sessions.len() as u64))),
            (Table::Joint, wire::encode(&server.joint)),
            (Table::Paths, wire::encode(&server.paths)),
            (Table::Region, wire::encode(region)),
            (Table::Requests, wire::encode(&region.pending)),
            (Table::Contention, wire::encode(&region.contention)),
            (Table::WriteThrough, wire::encode(&region.write_through)),
            (Table::Walks, wire::encode(&region.walks)),
        ];
        let single = single.into_iter().map(|(table, row)| (table.key(&[]), row));
        let session = |id: &SessionId| Table::Session.key(&id.0.to_be_bytes());
        let sessions = sessions.iter().map(|(id, it)| (session(id), wire::encode(it)));
        single.chain(sessions).collect()
    }
}

impl ClusterState {
    fn read(store: &dyn Store, known: Versions) -> Result<ClusterState, Fault> {
        let key = Table::Cluster.key(&[]);
        let corrupt = || Corrupt::at(&key, "state");
        let row = store.get(&key).ok_or_else(corrupt)?;
        let (version, _) = postcard::take_from_bytes(&row).map_err(|_| corrupt())?;
        known_to(known, version)?;
        let cluster: ClusterState = exact(&row).ok_or_else(corrupt)?;
        known_to(known, cluster.in_use.oldest)?;
        Ok(cluster)
    }
}

/// Reads a table of one row.
fn read<T: for<'r> Deserialize<'r>>(store: &dyn Store, table: Table) -> Result<T, Corrupt> {
    let key = table.key(&[]);
    store.get(&key).and_then(|row| exact(&row)).ok_or_else(|| Corrupt::at(&key, "state"))
}

fn read_sessions(
    store: &dyn Store,
) -> Result<BTreeMap<SessionId, crate::sessions::session::Session>, Corrupt> {
    let (start, end) = Table::Session.range();
    let session = |(key, row): (Vec<u8>, Vec<u8>)| {
        let id = SessionId(Table::Session.number(&key)?);
        Ok((id, exact(&row).ok_or_else(|| Corrupt::at(&key, "session"))?))
    };
    store.scan(&start, &end, usize::MAX).into_iter().map(session).collect()
}

impl RegionState {
    /// The recall to send to `holder` for a request of `asker`; nothing if it was sent already.
    pub fn recall(
        &mut self,
        now: Time,
        asker: SessionId,
        holder: SessionId,
        released: &Released,
    ) -> Option<Released> {
        let Released { file, field, keep } = released;
        self.contention.recalled(now, asker, file, field);
        let told = self.pending.queue.recalls.recall(now, holder, file, field, *keep)?;
        self.pending.owes_answer(holder, file);
        Some(told)
    }

    /// Notes that `session` has released something, asked or not: requests that wait for it are
    /// tried again.
    pub fn released(&mut self, now: Time, session: SessionId, released: &Released) {
        let Released { file, field, keep } = released;
        if let Some(since) = self.pending.queue.recalls.released(session, file, field, *keep) {
            self.contention.answered(file, field, now.ms_since(since));
        }
        self.pending.wake(file);
    }

    /// Forgets `file`, which no longer exists.
    pub fn died(&mut self, file: &FileId) {
        self.pending.died(file);
        self.write_through.died(file);
    }
}

/// The rows of the state as they stand in the store.
#[derive(Clone, Debug)]
pub(crate) struct Checkpointed(BTreeMap<RowKey, Vec<u8>>);

impl Checkpointed {
    /// In an empty store.
    pub fn nothing() -> Checkpointed {
        Checkpointed(BTreeMap::new())
    }

    /// In a store that `state` was just read from.
    pub fn of(state: &DirectoryState) -> Checkpointed {
        Checkpointed(state.rows())
    }

    /// Writes the rows that differ from those of `state`, and removes those that it has no more.
    pub fn write(&mut self, state: &DirectoryState, store: &mut dyn Store) {
        let before = std::mem::replace(&mut self.0, state.rows());
        before.keys().filter(|key| !self.0.contains_key(*key)).for_each(|key| store.delete(key));
        let changed = self.0.iter().filter(|(key, row)| before.get(*key) != Some(*row));
        changed.for_each(|(key, row)| store.put(key, row.clone()));
    }
}
