//! The replicated group that hosts the directory: an openraft group of one member or several, its
//! log, and its store.
//!
//! An input that is proposed to the leader becomes part of a log entry and is applied. Its outputs
//! are delivered when the entry is durable, if they rest on that. The log makes changes durable.
//! The store is checkpointed now and then, and a start replays the log behind the last checkpoint.
//! openraft and the state machine run on one thread of the group's own, which also waits for the
//! disk.

mod members;
#[cfg(test)]
pub(crate) mod tests;

pub use members::{MembersError, wait};

use crate::alarm::Alarm;
use crate::batch::WaitingInput;
use crate::disk::{Disk, Local};
use crate::indispensable::Indispensable;
use crate::log::{LogDevice, RaftLog};
use crate::lookout::Lookout;
use crate::machine::{Position, Replica, StateMachine, position_of};
use crate::peers::{Ear, Here, KnownPeers, Peers};
use crate::proposer::{Clock, Proposer};
use crate::queue::{Attended, End, ProposalQueue};
use crate::store::{RowStoreError, RowView, StoreSettings, StoreStats};
use crate::trust::Trust;
use crate::types::GroupId;
use crate::{Conversation, Deliver, Event, Host, LogError, Standing, Wires};
use directory::{Directory, Fault, Input, Store};
use lease::{SessionId, Time};
use namespace::Attributes;
use openraft::EntryPayload;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::raft::ReadPolicy;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use wire::{ToClient, ToServer, Version, Versions};

/// Bounds of a [`Group`].
#[derive(Clone, Copy, Debug)]
pub struct GroupSettings {
    /// Memory for the server's rows, whatever their number. Half is for pages of the file, and an
    /// eighth for each of the two layers of changed rows. The rest is for the data of the directory
    /// and the log.
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
    /// The file that notes how far the log is durable, beside its directory. If older files of the
    /// log are put back, the mark shows it.
    pub mark: Option<PathBuf>,
    /// Whether its files are not those of the last start: they are a copy, or were put back.
    pub moved: bool,
}

/// The number of log segments that make a checkpoint necessary.
const SEGMENTS: u64 = 4;
/// The number of log segments written while a checkpoint is under way.
const SEGMENTS_MEANWHILE: u64 = 3;

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
    /// Its thread failed to start.
    #[error("starting the server's thread: {0}")]
    Thread(std::io::Error),
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
    runtime: tokio::runtime::Handle,
    thread: Mutex<Option<JoinHandle<()>>>,
    alarm: Alarm,
}

impl Group {
    /// Starts the member whose files are in the directory `dir`, on a thread of its own. See
    /// [`Group::start`].
    ///
    /// From then on damage is reported ([`Event::Damaged`]), and any other disk error stops the
    /// process ([`crate::EXIT_DISK`]).
    pub fn open(
        dir: &Path,
        settings: GroupSettings,
        root: Attributes,
        place: MemberPlace,
        wires: Arc<dyn Wires>,
        deliver: Deliver,
    ) -> Result<Group, GroupError> {
        let dir = dir.to_owned();
        let (tell, started) = sync_channel(1);
        let thread = std::thread::Builder::new().name("directory".to_owned()).spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(tell.send(Err(GroupError::Thread(error)))),
            };
            runtime.block_on(async {
                match Group::start(Arc::new(Local), &dir, settings, root, place, wires, deliver).await {
                    Ok((group, works)) => {
                        let indispensable = Indispensable(group.alarm.clone());
                        let lookout = group.ear.lookout.clone();
                        drop(tokio::spawn(async move { lookout.look_out().await }));
                        drop(tell.send(Ok(group)));
                        // This is a task, because tokio polls the system first whenever the future
                        // that a thread blocks on continues.
                        let works = async move {
                            let _indispensable = indispensable;
                            works.await;
                        };
                        drop(tokio::spawn(works).await);
                    }
                    Err(error) => drop(tell.send(Err(error))),
                }
            });
        });
        let thread = thread.map_err(GroupError::Thread)?;
        let mut group = started.recv().map_err(|error| GroupError::raft("starting", error))??;
        *group.thread.get_mut() = Some(thread);
        Ok(group)
    }

    /// Starts the member whose files are on `disk`, in the directory `dir`. A founder's root has
    /// the attributes `root`. For a lone voter it returns when everything that was applied before
    /// is applied again. No event is delivered before [`Group::begin`]. Whenever this member begins
    /// to lead, it first proposes [`Input::Lead`].
    ///
    /// It also returns the future that does the member's work from then on.
    pub async fn start(
        disk: Arc<dyn Disk>,
        dir: &Path,
        settings: GroupSettings,
        root: Attributes,
        mut place: MemberPlace,
        wires: Arc<dyn Wires>,
        deliver: Deliver,
    ) -> Result<(Group, impl Future<Output = ()> + Send + use<>), GroupError> {
        let deliver = Arc::new(deliver);
        let told = deliver.clone();
        let alarm = Alarm::new(move |why| told(Event::Damaged(why)));
        let (machine, is_new) = open_machine(&*disk, dir, settings, root, &place, alarm.clone())?;
        if place.founds {
            // The rows may be a backup's.
            place.host.name = machine.founder_name();
        }
        let machine = Arc::new(RwLock::new(machine));
        let segment_bytes = settings.log_bytes / SEGMENTS;
        let keep_bytes = settings.log_bytes + SEGMENTS_MEANWHILE * segment_bytes;
        let mark = place.mark.as_deref();
        let log = LogDevice::open(disk.clone(), &dir.join("log"), segment_bytes, keep_bytes, mark)?;
        let log = Arc::new(log.group(GroupId::FIRST));
        let lacks_rows = is_new && log.was_there();
        if lacks_rows || log.purged() > machine.read().position.applied {
            return Err(GroupError::Behind { rows: dir.join("rows") });
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
        let (member, knows) = (place.member, place.knows);
        let (here, known) = (Here::default(), KnownPeers::default());
        let trust = Trust::begin(member, place.moved, log.clone(), &queue, alarm.clone()).await?;
        let trust = Arc::new(trust);
        let lookout = Arc::<Lookout>::default();
        let peers = Peers {
            member,
            here: here.clone(),
            known: known.clone(),
            wires: wires.clone(),
            lookout: lookout.clone(),
            trust: trust.clone(),
        };
        let proposer = Proposer {
            queue: queue.clone(),
            log: log.clone(),
            state,
            settings,
            clock: clock.clone(),
            standing: standing.clone(),
            alone: alone.clone(),
            place,
            peers,
            alarm: alarm.clone(),
            started: Instant::now(),
        };
        let raft = proposer.start().await.map_err(|error| match alarm.why() {
            Some(why) => GroupError::Damaged(why.to_owned()),
            None => error,
        })?;
        let begun = Arc::new(Notify::new());
        let (may_work, works_on, raised) = (begun.clone(), raft.clone(), alarm.clone());
        let attended = Attended(queue.clone());
        let works = async move {
            let _attended = attended;
            let work = async {
                may_work.notified().await;
                proposer.work(works_on).await;
            };
            tokio::select! {
                biased;
                () = raised.raised() => {}
                () = work => {}
            }
        };
        let (started, dir) = (Instant::now(), dir.to_owned());
        let ear = Ear { member, raft, here, known, wires, knows, started, disk, dir, lookout, trust };
        let ear = Arc::new(ear);
        let (runtime, thread) = (tokio::runtime::Handle::current(), Mutex::new(None));
        Ok((
            Group { machine, log, queue, clock, standing, alone, ear, begun, member, runtime, thread, alarm },
            works,
        ))
    }

    /// Runs `work` on the group's thread, until it ends or the group does. It must not block.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.runtime.spawn(work));
    }

    /// Begins a conversation with another member, which calls over a new connection.
    pub fn listen(&self) -> Conversation {
        Conversation::with(self.ear.clone())
    }

    /// Notes that a client sent a message.
    pub fn heard(&self) {
        self.ear.lookout.heard();
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
        self.ear.wires.speaks(member)
    }

    /// Proposes an input. It never blocks, so the caller may hold a lock that `deliver` takes. A
    /// caller that proposes much must look at [`Group::backlog_bytes`].
    pub fn propose(&self, input: Input) {
        self.queue.push(WaitingInput::new(input));
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
        if alone {
            match self.log.sync() {
                // The answer comes from an entry, which waits for room.
                Err(error) if error.lacks_room() => {
                    self.propose(Input::Message { session, message: question.clone() });
                    return None;
                }
                synced => synced.unwrap_or_else(|error| self.alarm.stop(&error)),
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
        self.log.reread(after).unwrap_or_else(|error| {
            if error.is_damage() { self.alarm.raise(&error) } else { self.alarm.stop(&error) }
        })
    }

    /// Reports an error from reading this member's data. Does not return.
    pub fn lose(&self, error: &RowStoreError) -> ! {
        if error.is_damage() { self.alarm.raise(error) } else { self.alarm.stop(error) }
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
        self.alarm.why().is_some()
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
        let Some(thread) = self.thread.lock().take() else { return };
        // `deliver` may have held the group last. Then its thread ends after this call.
        if thread.thread().id() != std::thread::current().id() {
            // The thread returns nothing, and a panic would have stopped the process.
            drop(thread.join());
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.join(End::Abrupt);
    }
}

/// Opens the state. Also returns whether it was created just now.
fn open_machine(
    disk: &dyn Disk,
    dir: &Path,
    settings: GroupSettings,
    root: Attributes,
    place: &MemberPlace,
    alarm: Alarm,
) -> Result<(Replica, bool), GroupError> {
    let knows = place.knows;
    let bounds =
        StoreSettings { cache_bytes: settings.memory_bytes / 2, overlay_bytes: settings.memory_bytes / 8 };
    let mut store = disk.open_rows(&dir.join("rows"), bounds)?.with_alarm(alarm.clone());
    let is_new = store.position().is_none();
    let position = match store.position() {
        Some(position) => Position::decode(&position).map_err(GroupError::state)?,
        None => {
            Directory::create(&mut store, root, &place.host.name, knows);
            let position = Position::default();
            if let Some(checkpoint) = store.checkpoint(position.encode().map_err(GroupError::state)?) {
                checkpoint.write()?;
            }
            position
        }
    };
    let directory = Directory::open(&store, knows).map_err(|fault| match fault {
        Fault::Corrupt(corrupt) => GroupError::state(corrupt),
        version @ Fault::Version { .. } => GroupError::Version(version),
    })?;
    Ok((Replica { directory, store, position, knows, lasting: false, alarm }, is_new))
}
