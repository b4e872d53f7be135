//! A replicated group that hosts a directory: an openraft group of one member or several, its log,
//! and its rows.
//!
//! An input that is proposed to the leader becomes part of a log entry and is applied. Its outputs
//! are delivered when the entry is durable, if they rest on that. The log makes changes durable.
//! The rows are checkpointed now and then, and a start replays the log behind the last checkpoint.
//! openraft and the state machine run on the thread of the machine's groups ([`crate::GroupHost`]).

mod members;
#[cfg(test)]
pub(crate) mod tests;

pub use members::{MembersError, wait};

use crate::alarm::{Alarm, MemberEnd};
use crate::batch::WaitingInput;
use crate::group_host::HostParts;
use crate::group_id::GroupId;
use crate::indispensable::indispensable;
use crate::log::RaftLog;
use crate::machine::{Position, Raft, Replica, StateMachine, position_of};
use crate::peers::{Ear, Here, KnownPeers, Listening, Peers};
use crate::proposer::{Clock, Proposer};
use crate::queue::{Attended, End, ProposalQueue};
use crate::runtime::Runtime;
use crate::store::{RowStore, RowStoreError, RowView, StoreStats};
use crate::trust::Trust;
use crate::{Deliver, Event, Host, LogError, Standing, Wires};
use directory::{Directory, Fault, Input, Registry, Store};
use futures_util::FutureExt;
use ident::ServerId;
use lease::{SessionId, Time};
use namespace::Attributes;
use openraft::EntryPayload;
use openraft::async_runtime::AsyncRuntime;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::raft::ReadPolicy;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use wire::{ToClient, ToServer, Version, Versions};

/// Bounds of a machine's groups.
#[derive(Clone, Copy, Debug)]
pub struct GroupSettings {
    /// Memory for the rows of all groups, whatever their number. Half is for pages of the file, and
    /// an eighth for each of the two layers of changed rows. The rest is for the data of the
    /// directories and the log.
    pub memory_bytes: usize,
    /// The longest time before changes reach the store's file.
    pub checkpoint_after: Duration,
    /// Bytes of log, which a start would have to read, at which a checkpoint begins. It bounds the
    /// time of a start after a crash.
    pub log_bytes: u64,
}

/// The number and the place of this member of the group.
#[derive(Clone, Debug)]
pub struct MemberPlace {
    /// Its number in the group.
    pub member: u64,
    /// Its machine, and the machine's name if it founds the cluster.
    pub host: Host,
    /// Whether it founds the group if there is none. Otherwise it waits for the leader to send it
    /// the members.
    pub founds: bool,
    /// The versions that this program knows.
    pub knows: Versions,
}

/// How long the work of a member that has failed may take to end.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

impl Default for GroupSettings {
    fn default() -> GroupSettings {
        GroupSettings {
            memory_bytes: 256 << 20,
            checkpoint_after: Duration::from_secs(60),
            log_bytes: 32 << 20,
        }
    }
}

/// The reason why the group cannot start.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// Its store failed.
    #[error(transparent)]
    Store(#[from] RowStoreError),
    /// Its log failed.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The content of the store is not a directory's state.
    #[error("the server's state cannot be read: {0}")]
    State(Box<dyn std::error::Error + Send + Sync>),
    /// The store is older than the log says. Entries that the log has purged are not in it.
    #[error("{rows} is not what was written: what the log has forgotten is not in it", rows = rows.display())]
    Behind {
        /// The store's file.
        rows: PathBuf,
    },
    /// It found damage while it started.
    #[error("{0}")]
    Damaged(String),
    /// This program does not know the version of the state. The state is not damaged.
    #[error(transparent)]
    Version(Fault),
    /// The rows cannot be written to disk.
    #[error("the rows cannot be written down: the server's disk is full, or it has ended")]
    NoCheckpoint,
    /// The thread of the machine's groups failed to start.
    #[error("starting the server's thread: {0}")]
    Thread(std::io::Error),
    /// The host of the groups has ended, or a part of it has failed.
    #[error("this server has ended")]
    Closed,
    /// This machine's former member of the group has not ended.
    #[error("this server's former member of the group has not ended yet")]
    Open,
    /// openraft refuses.
    #[error("{doing} the server's group: {cause}")]
    Raft {
        /// The operation that failed.
        doing: &'static str,
        /// Why it failed.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl GroupError {
    /// Returns whether this member has lost state, and cannot go on as the same member.
    pub fn is_damage(&self) -> bool {
        match self {
            GroupError::Store(error) => error.is_damage(),
            GroupError::Log(error) => error.is_damage(),
            GroupError::State(_) | GroupError::Behind { .. } | GroupError::Damaged(_) => true,
            GroupError::Version(_)
            | GroupError::NoCheckpoint
            | GroupError::Thread(_)
            | GroupError::Closed
            | GroupError::Open
            | GroupError::Raft { .. } => false,
        }
    }

    pub(crate) fn raft(
        doing: &'static str,
        cause: impl std::error::Error + Send + Sync + 'static,
    ) -> GroupError {
        GroupError::Raft { doing, cause: Box::new(cause) }
    }

    /// Makes the error for a state that cannot be read, with its cause.
    pub fn state(cause: impl std::error::Error + Send + Sync + 'static) -> GroupError {
        GroupError::State(Box::new(cause))
    }
}

/// The state with which a group begins.
pub(crate) enum FirstState {
    /// That of a new cluster, whose root has these attributes.
    Cluster(Attributes),
    /// That of a server beside the root server, which knows these machines, and is founded at this
    /// time (UTC seconds).
    Beside(ServerId, Registry, u64),
}

/// The status of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// Index of the last applied entry.
    pub applied: u64,
    /// Term of the last applied entry.
    pub term: u64,
    /// Time of the last applied entry.
    pub time: Time,
    /// Bytes of log that a start would read.
    pub log_bytes: u64,
    /// Number of log flushes since the group was opened.
    pub log_flushes: u64,
    /// Bytes proposed and not applied yet.
    pub backlog_bytes: usize,
    /// Whether the disk is full: rows or log entries wait for room.
    pub lacks_room: bool,
    /// The store.
    pub store: StoreStats,
}

/// An entry of the log.
#[derive(Clone, Debug)]
pub struct Logged {
    /// Its term.
    pub term: u64,
    /// Its time, if it has inputs.
    pub time: Time,
    /// The digest of the state before it ([`Directory::digest`]). None for openraft's own entries.
    pub digest: Option<u64>,
    /// Its inputs. None if the entry is of a version that this program does not know.
    pub inputs: Option<Arc<Vec<Input>>>,
    /// The voters from this entry on, if it changes them. A majority of each of these sets is
    /// needed.
    pub voters: Option<Vec<BTreeSet<u64>>>,
}

/// A member of a running group. If it is dropped without [`Group::shutdown`], it ends as in a
/// crash. Nothing that was delivered is lost.
pub struct Group {
    pub(crate) machine: Arc<RwLock<Replica>>,
    log: Arc<RaftLog>,
    queue: Arc<ProposalQueue>,
    clock: Arc<Mutex<Option<Clock>>>,
    standing: Arc<Mutex<Standing>>,
    alone: Arc<AtomicBool>,
    pub(crate) ear: Arc<Ear>,
    begun: Arc<Notify>,
    member: u64,
    alarm: Alarm,
    /// Its sender is dropped when the work has ended.
    ended: Mutex<Option<Receiver<()>>>,
    host: Arc<HostParts>,
}

impl Group {
    /// Starts this machine's member of the group `id`. See [`crate::GroupHost::start_group`].
    pub(crate) async fn start(
        host: Arc<HostParts>,
        id: GroupId,
        first: FirstState,
        mut place: MemberPlace,
        wires: Arc<dyn Wires>,
        deliver: Deliver,
    ) -> Result<(Group, impl Future<Output = ()> + Send + use<>), GroupError> {
        let deliver = Arc::new(deliver);
        let told = deliver.clone();
        let alarm = host.alarm.member(move |why| told(Event::Ended(why)));
        if let Some(why) = alarm.why() {
            return Err(GroupError::Damaged(why.to_string()));
        }
        let log = Arc::new(host.log.group(id));
        let (rows, knows, founder) = (host.rows.clone(), place.knows, place.host.name.clone());
        let its = alarm.clone();
        let begins_cluster = matches!(first, FirstState::Cluster(_));
        let open = move || open_machine(rows.group(id)?, first, &founder, knows, its);
        let (machine, is_new) = match log.is_shared() {
            true => Runtime::spawn_blocking(open).await.map_err(|e| GroupError::raft("opening", e))??,
            false => open()?,
        };
        if place.founds && begins_cluster {
            // The rows may be a backup's.
            place.host.name = machine.founder_name();
        }
        let machine = Arc::new(RwLock::new(machine));
        let lacks_rows = is_new && log.was_there();
        if lacks_rows || log.purged() > machine.read().position.applied {
            return Err(GroupError::Behind { rows: host.dir.join("rows") });
        }
        let queue = Arc::new(ProposalQueue::default());
        let alone = Arc::new(AtomicBool::new(false));
        let state = StateMachine {
            machine: machine.clone(),
            log: log.clone(),
            log_full: log.full(),
            alone: alone.clone(),
            deliver,
            checkpointed: Arc::default(),
            queue: queue.clone(),
        };
        let (clock, standing): (Arc<Mutex<Option<Clock>>>, Arc<Mutex<Standing>>) = Default::default();
        let member = place.member;
        let (here, known) = (Here::default(), KnownPeers::default());
        let trust = Trust::begin(member, host.moved, log.clone(), &queue, alarm.clone()).await?;
        let trust = Arc::new(trust);
        let peers = Peers {
            group: id,
            member,
            here: here.clone(),
            known: known.clone(),
            wires: wires.clone(),
            lookout: host.lookout.clone(),
            trust: trust.clone(),
        };
        let proposer = Proposer {
            queue: queue.clone(),
            log: log.clone(),
            state,
            settings: host.settings,
            clock: clock.clone(),
            standing: standing.clone(),
            alone: alone.clone(),
            place,
            peers,
            alarm: alarm.clone(),
            started: Instant::now(),
        };
        let raft = alarm.clone().over(proposer.start()).await.map_err(|error| match alarm.why() {
            Some(why) if why.is_damage() => GroupError::Damaged(why.to_string()),
            _ => error,
        })?;
        let ear = Arc::new(Ear {
            group: id,
            member,
            raft: raft.clone(),
            queue: queue.clone(),
            here,
            known,
            wires,
            knows,
            started: Instant::now(),
            disk: host.disk.clone(),
            dir: host.dir.clone(),
            lookout: host.lookout.clone(),
            trust,
        });
        let listening = Listening::begin(host.ears.clone(), ear.clone());
        let begun = Arc::new(Notify::new());
        let (ends, ended) = channel();
        let parts = (Attended(queue.clone()), listening, ends);
        let works = work((proposer, raft), begun.clone(), alarm.clone(), standing.clone(), parts);
        let works = alarm.clone().over(works);
        let ended = Mutex::new(Some(ended));
        let group =
            Group { machine, log, queue, clock, standing, alone, ear, begun, member, alarm, ended, host };
        Ok((group, works))
    }

    /// Returns the group's number.
    pub fn id(&self) -> GroupId {
        self.ear.group
    }

    /// Returns the members and the leader.
    pub fn standing(&self) -> Standing {
        self.standing.lock().clone()
    }

    /// Returns whether everything that was committed before the current leader began is applied
    /// here. Then the state is no older than any state that was acted on. A lone voter applies its
    /// whole log before it does anything.
    pub fn is_current(&self) -> bool {
        if self.standing.lock().alone {
            return true;
        }
        let metrics = self.ear.raft.metrics();
        let metrics = metrics.borrow_watched();
        let applied = metrics.last_applied.map(|log_id| log_id.leader_id.term);
        metrics.current_leader.is_some() && applied == Some(metrics.current_term)
    }

    /// Begins to deliver events to the host, which is ready for them.
    pub fn begin(&self) {
        self.begun.notify_one();
    }

    /// Sets the addresses at which others reach this member, as long as it runs. It sends them to
    /// members that it asks for a vote.
    pub fn listens_at(&self, addresses: Vec<String>) {
        // Only the first call counts: a member never changes its addresses.
        let _ = self.ear.here.set(addresses);
    }

    /// Returns whether this member leads. Other members drop proposals.
    pub fn leads(&self) -> bool {
        self.standing.lock().leads
    }

    /// Returns the cluster's version, as of the last entry applied here.
    pub fn version(&self) -> Version {
        self.machine.read().directory.version()
    }

    /// Returns the versions that this program knows.
    pub fn knows(&self) -> Versions {
        self.ear.knows
    }

    /// Returns the version that another member speaks with this one, if it has spoken since this
    /// one started.
    pub fn speaks(&self, member: u64) -> Option<Version> {
        let standing = self.standing.lock();
        let member = standing.members.iter().find(|it| it.id == member)?;
        self.ear.wires.speaks(member.host.machine)
    }

    /// Proposes an input. It never blocks, so the caller may hold a lock that `deliver` takes. A
    /// caller that proposes much must look at [`Group::backlog_bytes`].
    pub fn propose(&self, input: Input) {
        self.queue.push(WaitingInput::new(input));
    }

    /// Proposes an input of another server of the directory, at the leader, here or on another
    /// machine. Never blocks. On the way it may be lost, or be overtaken by a later one.
    pub fn pass_on(&self, input: Input) {
        let standing = self.standing();
        if standing.leads {
            return self.propose(input);
        }
        let Some(leader) = standing.members.into_iter().find(|member| Some(member.id) == standing.leader)
        else {
            return;
        };
        let mut peer = self.ear.peer(leader.id, &leader.host);
        self.host.spawn(async move {
            // The other server says it again until it has an answer.
            let _ = peer.pass_on(input).await;
        });
    }

    /// Returns the bytes proposed and not applied yet. Above some megabytes writers should be
    /// slowed.
    pub fn backlog_bytes(&self) -> usize {
        self.queue.backlog_bytes()
    }

    /// Reads the state after some entry, on this thread. No entry is applied meanwhile. Must not be
    /// called from within `ask`.
    pub fn query<T>(&self, ask: impl FnOnce(&Directory, &dyn Store) -> T) -> T {
        let machine = self.machine.read();
        ask(&machine.directory, &machine.store)
    }

    /// Returns true when it is certain that this member still leads, and all earlier commits are
    /// applied. Then [`Group::answer`] gives the current state. Returns false if another member
    /// leads. It costs no message while the leader's lease lasts.
    pub async fn confirm(&self) -> bool {
        if self.standing.lock().alone {
            return true;
        }
        let votes = {
            let metrics = self.ear.raft.metrics();
            let metrics = metrics.borrow_watched();
            metrics.membership_config.membership().voter_ids().any(|voter| voter == self.member)
        };
        // The voters that replaced this member no longer heed its lease. Once it hands over,
        // openraft confirms nothing.
        let policy = if votes { ReadPolicy::LeaseRead } else { ReadPolicy::ReadIndex };
        self.ear.raft.ensure_linearizable(policy).await.is_ok()
    }

    /// Answers a client's question that changes no state. The answer rests on durable state:
    /// entries that several have applied are committed.
    pub fn answer(&self, session: SessionId, question: &ToServer) -> Option<ToClient> {
        let answer = self.query(|directory, store| directory.query(session, question, store))?;
        let (leads, alone) = {
            let standing = self.standing.lock();
            (standing.leads, standing.alone)
        };
        if !leads {
            // Another may lead by now. Its changes come after this look at the state.
            return None;
        }
        if alone && self.log.waits() {
            // The thread of several groups does not wait for the disk.
            let may_wait = !self.log.is_shared() || self.host.thread() != Some(std::thread::current().id());
            match may_wait.then(|| self.log.sync()) {
                Some(Ok(())) => {}
                Some(Err(error)) if !error.lacks_room() => self.alarm.disk_failed(&error, error.is_damage()),
                // The answer comes from an entry, which waits for room.
                Some(Err(_)) | None => {
                    self.propose(Input::Message { session, message: question.clone() });
                    return None;
                }
            }
        }
        Some(answer)
    }

    /// Returns about the time that an entry would have if it were proposed now.
    pub fn now(&self) -> Time {
        let clock = *self.clock.lock();
        clock.as_ref().map_or_else(|| self.machine.read().position.time, Clock::now)
    }

    /// Returns true when everything that was proposed before is in the store's file. Returns false
    /// if the disk is full, or the group has ended. Must not be called from `deliver`.
    pub fn checkpoint(&self) -> bool {
        self.ask_checkpoint().blocking_recv().is_ok()
    }

    fn ask_checkpoint(&self) -> oneshot::Receiver<()> {
        let (tell, done) = oneshot::channel();
        self.queue.ask_checkpoint(tell);
        done
    }

    /// Returns all rows after one entry, behind everything that was proposed before, and that
    /// entry's time. It fails as [`Group::checkpoint`] does.
    pub fn freeze(&self) -> Result<(RowView, Time), GroupError> {
        if !self.checkpoint() {
            return Err(GroupError::NoCheckpoint);
        }
        let rows = self.machine.read().store.view();
        let position = position_of(&rows).map_err(GroupError::state)?;
        Ok((rows, position.time))
    }

    /// Returns the rows of the last checkpoint.
    pub fn rows(&self) -> RowView {
        self.machine.read().store.view()
    }

    /// Rereads from the disk the log segment after the one whose first frame is `after`. Returns
    /// its first frame and its size in bytes.
    pub fn reread_log(&self, after: Option<u64>) -> Option<(u64, usize)> {
        self.log.reread(after).unwrap_or_else(|error| self.alarm.disk_failed(&error, error.is_damage()))
    }

    /// Reports an error from reading this member's data. Does not return.
    pub fn lose(&self, error: &RowStoreError) -> ! {
        self.alarm.disk_failed(error, error.is_damage())
    }

    /// Ends this member as a failure of it does. Does not return.
    #[cfg(test)]
    pub(crate) fn fails(&self, why: &'static str) -> ! {
        self.alarm.fail(&std::io::Error::other(why))
    }

    /// Returns the number that this start of the member has drawn.
    pub fn drawn(&self) -> u64 {
        self.ear.trust.own().drawn
    }

    /// Returns whether a start of this member has drawn that number, as far as its disk remembers.
    pub fn remembers(&self, drawn: u64) -> bool {
        self.ear.trust.remembers(drawn)
    }

    /// Returns whether this member takes part: as far as the others know, it remembers all its
    /// promises. A member that has just started waits until they say so.
    pub fn is_trusted(&self) -> bool {
        self.ear.trust.is_trusted()
    }

    /// Returns whether that member has confirmed, since this one started, that this one has all its
    /// promises.
    pub fn is_confirmed_by(&self, member: u64) -> bool {
        self.ear.trust.is_confirmed_by(member)
    }

    /// Returns whether this member has lost state.
    pub fn is_damaged(&self) -> bool {
        self.alarm.why().is_some_and(MemberEnd::is_damage)
    }

    /// Returns the last entry that is applied here.
    pub fn applied(&self) -> Option<u64> {
        self.machine.read().position.applied.map(|log_id| log_id.index)
    }

    /// Returns the last entry that is applied here and that no crash can undo. A lone voter applies
    /// entries before they are durable.
    pub fn agreed(&self) -> Option<u64> {
        let alone = self.alone.load(SeqCst);
        let (applied, durable) = (self.applied(), self.log.durable());
        if alone { applied.min(durable.map(|log_id| log_id.index)) } else { applied }
    }

    /// Returns the log's entry at `index` from this member. None if it has no such entry, or not
    /// any more.
    pub fn entry(&self, index: u64) -> Result<Option<Logged>, LogError> {
        let recent = self.log.recent().lock().get(index);
        let entry = match recent {
            Some(entry) => Some(entry),
            None => self.log.read(index)?,
        };
        Ok(entry.map(|entry| {
            let term = entry.log_id.leader_id.term;
            match entry.payload {
                EntryPayload::Normal(batch) => Logged {
                    term,
                    time: batch.now,
                    digest: Some(batch.digest),
                    inputs: batch.inputs,
                    voters: None,
                },
                payload => {
                    let voters = match payload {
                        EntryPayload::Membership(members) => Some(members.get_joint_config().clone()),
                        _ => None,
                    };
                    Logged { term, time: Time(0), digest: None, inputs: Some(Arc::default()), voters }
                }
            }
        }))
    }

    /// Returns the status of the group.
    pub fn status(&self) -> GroupStatus {
        let machine = self.machine.read();
        let applied = machine.position.applied;
        let log = &self.log;
        GroupStatus {
            applied: applied.map_or(0, |log_id| log_id.index),
            term: applied.map_or(0, |log_id| log_id.leader_id.term),
            time: machine.position.time,
            log_bytes: log.bytes(),
            log_flushes: log.flushes(),
            backlog_bytes: self.queue.backlog_bytes(),
            lacks_room: machine.store.lacks_room() || log.full().load(SeqCst),
            store: machine.store.stats(),
        }
    }

    /// Makes another member lead, if this one leads and another is there, after all proposals so
    /// far. The receiver hears of the end, or its sender is gone: this member has voted for its
    /// successor by then, there is none within a second, or this member did not lead.
    pub fn hand_over(&self) -> oneshot::Receiver<()> {
        let (tell, done) = oneshot::channel();
        self.queue.hand_over(tell);
        done
    }

    /// Ends the group. It applies what was proposed and checkpoints, so that the next start replays
    /// nothing.
    pub fn shutdown(&self) {
        self.join(End::Orderly);
    }

    fn join(&self, end: End) {
        self.queue.end(end);
        self.begun.notify_one();
        let Some(ended) = self.ended.lock().take() else { return };
        // A simulated host has no thread. `deliver` may have held the group last: then its work
        // ends after this call.
        if self.host.thread().is_some_and(|thread| thread != std::thread::current().id()) {
            // Nothing is sent.
            let _ = ended.recv();
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.join(End::Abrupt);
    }
}

/// Does a member's work from `begun` on, until it ends or has failed. Its `parts` go with the work.
async fn work(
    (proposer, raft): (Proposer, Raft),
    begun: Arc<Notify>,
    alarm: Alarm,
    standing: Arc<Mutex<Standing>>,
    parts: (Attended, Listening, Sender<()>),
) {
    let (attended, listening, _ends) = parts;
    let shuts_down = raft.clone();
    let work = indispensable(async {
        begun.notified().await;
        proposer.work(raft).await;
    });
    tokio::select! {
        biased;
        () = alarm.raised() => {}
        // A panic has raised it.
        _ = AssertUnwindSafe(work).catch_unwind() => {}
    }
    if alarm.why().is_some() {
        // It says nothing more, and no one hears it.
        standing.lock().leads = false;
        drop((attended, listening));
        // A part of it that is gone does not end.
        let _ = tokio::time::timeout(ENDS_WITHIN, shuts_down.shutdown()).await;
    }
}

/// Opens the state in `store`. A new one is `first`; a cluster is founded by the machine of this
/// name. Also returns whether it was created just now.
fn open_machine(
    store: RowStore,
    first: FirstState,
    founder: &str,
    knows: Versions,
    alarm: Alarm,
) -> Result<(Replica, bool), GroupError> {
    let mut store = store.with_alarm(alarm.clone());
    let is_new = store.position().is_none();
    let position = match store.position() {
        Some(position) => Position::decode(&position).map_err(GroupError::state)?,
        None => {
            match first {
                FirstState::Cluster(root) => _ = Directory::create(&mut store, root, founder, knows),
                FirstState::Beside(number, registry, at) => {
                    let registry = (&registry, at);
                    Directory::create_beside(&mut store, number, registry, knows).map_err(of_fault)?;
                }
            }
            let position = Position::default();
            if let Some(checkpoint) = store.checkpoint(position.encode().map_err(GroupError::state)?) {
                checkpoint.write()?;
            }
            position
        }
    };
    let directory = Directory::open(&store, knows).map_err(of_fault)?;
    Ok((Replica { directory, store, position, knows, lasting: false, alarm }, is_new))
}

fn of_fault(fault: Fault) -> GroupError {
    match fault {
        Fault::Corrupt(corrupt) => GroupError::state(corrupt),
        version @ Fault::Version { .. } => GroupError::Version(version),
    }
}
