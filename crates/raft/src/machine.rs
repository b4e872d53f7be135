//! The replicated state machine as openraft drives it: the directory over its store.
//!
//! openraft's snapshot is the store's checkpoint. Building one freezes the changed rows between two
//! entries, and commits them in the background. After that openraft purges the log up to it.

use super::batch::Batch;
use super::life::Life;
use super::log::RaftLog;
use super::queue::ProposalQueue;
use super::runtime::Runtime;
use super::storage::when_there_is_room;
use super::types::{Applied, Host, LogId, Snapshot, SnapshotMeta, StoredMembership, Types};
use crate::alarm::{Alarm, MemberEnd};
use crate::store::{Checkpoint, LOOK, RowStore, RowStoreError, RowView};
use directory::{Directory, Fault, Output, Violation};
use futures_util::{Stream, TryStreamExt};
use lease::Time;
use openraft::EntryPayload;
use openraft::async_runtime::AsyncRuntime;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tokio::sync::Notify;
use wire::{Version, Versions};

/// An event that the group delivers to its host.
#[derive(Debug)]
pub enum Event {
    /// This member leads, and these are the outputs of an entry that it proposed. They must be
    /// carried out.
    Outputs(Vec<Output>),
    /// These are the outputs of an entry that another member proposed, or this one in an earlier
    /// life. Only the part that each replica does for itself must be carried out.
    Applied(Vec<Output>),
    /// A snapshot of another member has replaced the whole state.
    Replaced,
    /// The leader or the members may have changed, see [`super::Group::standing`].
    Standing,
    /// This member cannot go on. It must not be asked for anything any more. This event comes on
    /// any thread, with any lock held.
    Ended(MemberEnd),
}

/// Receives events. It is called on the group's thread, in the order of the log, with no lock of
/// the group held, except for [`Event::Ended`].
pub type Deliver = Box<dyn Fn(Event) + Send + Sync>;

/// This replica's state differs from the one on which an entry was proposed.
#[derive(Debug, thiserror::Error)]
#[error(
    "this server's state is not that of the others after entry {index}: its disk has changed what was written, or this is a bug"
)]
struct Diverged {
    index: u64,
}

/// Debug builds check the whole state at every so many entries, as long as it has no more files
/// than this: a check reads all rows.
const ENTRIES_A_CHECK: u64 = 256;
const FILES_OF_CHECK_MAX: u64 = 2_000;

/// An entry is of a version that this program does not know.
#[derive(Debug, thiserror::Error)]
#[error(
    "entry {index} of the server's log is of version {version}, and this leasehold knows {known}: install a newer one on this machine"
)]
struct Unknown {
    index: u64,
    version: Version,
    known: Versions,
}

/// The position of a state in the log. A checkpoint stores it beside the rows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Position {
    pub(super) applied: Option<LogId>,
    pub(super) membership: StoredMembership,
    pub(super) time: Time,
}

impl Position {
    pub(super) fn encode(&self) -> io::Result<Vec<u8>> {
        postcard::to_allocvec(self).map_err(io::Error::other)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Position, postcard::Error> {
        postcard::from_bytes(bytes)
    }

    fn meta(&self) -> SnapshotMeta {
        SnapshotMeta { last_log_id: self.applied, last_membership: self.membership.clone() }
    }
}

/// The directory, its rows, and the last entry applied to them.
pub(super) struct Replica {
    pub(super) directory: Directory,
    pub(super) store: RowStore,
    pub(super) position: Position,
    /// The versions that this program knows.
    pub(super) knows: Versions,
    /// Whether a lasting change was applied since outputs that rest on the log were last delivered.
    pub(super) lasting: bool,
    pub(super) alarm: Alarm,
}

impl Replica {
    /// The name of the machine that has founded the cluster.
    pub(super) fn founder_name(&self) -> String {
        let mut machines = self.directory.machines(self.position.time, &self.store).into_iter();
        machines.find(|it| it.machine == directory::FOUNDER).map_or_else(String::new, |it| it.name)
    }

    fn apply(&mut self, log_id: LogId, payload: EntryPayload<Batch, u64, Host>) -> Vec<Output> {
        self.alarm.meet();
        let mut outputs = Vec::new();
        let applied = self.position.applied;
        assert!(
            applied.is_none_or(|last| last.index < log_id.index),
            "{log_id:?} is applied after {applied:?}"
        );
        match payload {
            EntryPayload::Blank => {}
            EntryPayload::Normal(batch) => {
                let (now, digest) = (batch.now, batch.digest);
                let inputs = batch.into_inputs(self.knows).unwrap_or_else(|version| {
                    self.alarm.fail(&Unknown { index: log_id.index, version, known: self.knows });
                });
                if digest != self.directory.digest() {
                    self.alarm.raise(&Diverged { index: log_id.index.saturating_sub(1) });
                }
                // The proposer keeps time from going back. The clock of a later leader may be
                // behind.
                let now = now.max(self.position.time);
                for input in inputs {
                    let handled = self.directory.handle(now, input, &mut self.store, &mut outputs);
                    handled.unwrap_or_else(|fault| match fault {
                        Fault::Corrupt(corrupt) => self.alarm.raise(&corrupt),
                        // The data on disk is not damaged.
                        version @ Fault::Version { .. } => self.alarm.fail(&version),
                    });
                    self.lasting |= self.directory.lasts();
                    for (session, misdeed) in self.directory.misdeeds() {
                        tracing::error!(session = session.0, %misdeed, "a machine's session was ended for a misdeed");
                    }
                }
                self.position.time = now;
            }
            EntryPayload::Membership(membership) => {
                self.position.membership = StoredMembership::new(Some(log_id), membership);
            }
        }
        self.position.applied = Some(log_id);
        if cfg!(debug_assertions) && log_id.index.is_multiple_of(ENTRIES_A_CHECK) {
            self.check();
        }
        outputs
    }

    /// Asserts the invariants of a state that is not too large.
    fn check(&self) {
        if self.directory.status(self.position.time).files <= FILES_OF_CHECK_MAX {
            let mut violations: Vec<Violation> = Vec::new();
            self.directory.check(&self.store, &mut violations);
            assert!(violations.is_empty(), "after entry {:?}: {violations:?}", self.position.applied);
        }
    }

    /// Begins a checkpoint of the present state.
    fn checkpoint(&mut self) -> io::Result<Option<Checkpoint>> {
        self.directory.checkpoint(&mut self.store);
        Ok(self.store.checkpoint(self.position.encode()?))
    }
}

/// This group's openraft.
pub(super) type Raft = openraft::Raft<Types, StateMachine>;

/// openraft's handle on the machine.
#[derive(Clone)]
pub struct StateMachine {
    pub(super) machine: Arc<RwLock<Replica>>,
    /// The log. Applied entries may not be durable yet.
    pub(super) log: Arc<RaftLog>,
    /// The flag of [`RaftLog::full`].
    pub(super) log_full: Arc<AtomicBool>,
    /// Whether there is no other member. Then committed entries are durable nowhere else.
    pub(super) alone: Arc<AtomicBool>,
    pub(super) deliver: Arc<Deliver>,
    /// Notified whenever a checkpoint has ended.
    pub(super) checkpointed: Arc<Notify>,
    pub(super) queue: Arc<ProposalQueue>,
}

impl StateMachine {
    /// Waits while both layers of changed rows are full, or the log can take no more before a
    /// purge. Then the disk is slower than the input, or full.
    async fn wait_for_room(&self) {
        loop {
            let ended = self.checkpointed.notified();
            if self.has_room() || self.queue.is_ending() {
                return;
            }
            // The log is purged some time after the checkpoint ends.
            let _ = tokio::time::timeout(LOOK, ended).await;
        }
    }

    fn has_room(&self) -> bool {
        let machine = self.machine.read();
        !machine.store.is_checkpointing() || (!machine.store.is_full() && self.log.has_spare())
    }

    /// Returns whether the disk is full: rows or log entries wait for room.
    pub(super) fn lacks_room(&self) -> bool {
        self.machine.read().store.lacks_room() || self.log_full.load(SeqCst) || Life::lacks_room()
    }

    /// Returns whether nothing can be applied or made durable before the disk has room.
    pub(super) fn is_stuck(&self) -> bool {
        self.log_full.load(SeqCst) || self.lacks_room() && !self.has_room()
    }

    /// Returns when this member ends and the disk has no room. Other groups may wait on.
    async fn gives_up(&self) {
        while !(self.queue.is_ending() && self.lacks_room()) {
            tokio::time::sleep(LOOK).await;
        }
    }

    fn rows_failed(&self, error: &RowStoreError) -> ! {
        let alarm = self.machine.read().alarm.clone();
        alarm.disk_failed(error, error.is_damage())
    }

    /// Delivers the outputs of an entry. Those before the first that rests on the log go at once.
    /// The others go when all lasting changes are durable.
    async fn hand_over(&self, mut outputs: Vec<Output>) -> io::Result<()> {
        if let Some(at) = outputs.iter().position(Output::rests_on_the_log) {
            let resting = outputs.split_off(at);
            let told = !outputs.is_empty();
            self.tell(Event::Outputs, outputs);
            if self.alone.load(SeqCst) && self.machine.read().lasting {
                if told {
                    // Connections are tasks of this thread, which is about to wait for the disk.
                    tokio::task::yield_now().await;
                }
                when_there_is_room(&self.log, &self.queue).await?;
                self.machine.write().lasting = false;
            }
            outputs = resting;
        }
        self.tell(Event::Outputs, outputs);
        Ok(())
    }

    fn tell(&self, event: impl FnOnce(Vec<Output>) -> Event, outputs: Vec<Output>) {
        if !outputs.is_empty() {
            (self.deliver)(event(outputs));
        }
    }

    /// Begins a checkpoint of the present state. Durable rows must not be ahead of the durable log.
    async fn checkpoint(&self) -> io::Result<Option<Checkpoint>> {
        when_there_is_room(&self.log, &self.queue).await?;
        self.machine.write().checkpoint()
    }

    /// Returns the last finished checkpoint. None before one that contains an entry.
    fn snapshot(&self) -> io::Result<Option<Snapshot>> {
        let snapshot = self.machine.read().store.view();
        let position = position_of(&snapshot)?;
        Ok(position.applied.map(|_| Snapshot { meta: position.meta(), snapshot }))
    }
}

pub(super) fn position_of(rows: &RowView) -> io::Result<Position> {
    rows.position()
        .map_or(Ok(Position::default()), |position| Position::decode(position).map_err(io::Error::other))
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotData = RowView;
    type SnapshotBuilder = SnapshotBuilder;

    async fn applied_state(&mut self) -> io::Result<(Option<LogId>, StoredMembership)> {
        let machine = self.machine.read();
        Ok((machine.position.applied, machine.position.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> io::Result<()>
    where
        S: Stream<Item = io::Result<EntryResponder<Types>>> + Unpin + Send,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            self.wait_for_room().await;
            let outputs = self.machine.write().apply(entry.log_id, entry.payload);
            // Only the proposer of an entry has a responder for it. Entries replayed at a start,
            // and those of another leader, have none. Their outputs were delivered, or ended with
            // the sessions that they were for.
            match responder {
                Some(responder) => {
                    self.hand_over(outputs).await?;
                    responder.send(Applied);
                }
                None => self.tell(Event::Applied, outputs),
            }
        }
        Ok(())
    }

    async fn try_create_snapshot_builder(&mut self, force: bool) -> Option<SnapshotBuilder> {
        let checkpoint = self.checkpoint().await;
        match checkpoint {
            Ok(None) if !force => None,
            begun => Some(SnapshotBuilder { begun: begun.transpose(), state: self.clone() }),
        }
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder {
        let begun = self.checkpoint().await.transpose();
        SnapshotBuilder { begun, state: self.clone() }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMeta, snapshot: RowView) -> io::Result<()> {
        // A checkpoint under way would write the old rows over the new ones.
        loop {
            let ended = self.checkpointed.notified();
            if !self.machine.read().store.is_checkpointing() {
                break;
            }
            ended.await;
        }
        let position = Position {
            applied: meta.last_log_id,
            membership: meta.last_membership.clone(),
            ..position_of(&snapshot)?
        };
        // Only this task replaces rows or begins a checkpoint. Readers have the old rows meanwhile.
        let replacement = self.machine.read().store.replacement(snapshot);
        let replaced = Runtime::spawn_blocking(|| replacement.write()).await?;
        let replaced = replaced.unwrap_or_else(|error| self.rows_failed(&error));
        let mut machine = self.machine.write();
        machine.store.take_over(replaced);
        machine.directory = Directory::open(&machine.store, machine.knows).map_err(io::Error::other)?;
        machine.position = position;
        drop(machine);
        (self.deliver)(Event::Replaced);
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<Snapshot>> {
        self.snapshot()
    }
}

/// A checkpoint being written.
pub struct SnapshotBuilder {
    /// None: another one is under way, or nothing has changed.
    begun: Option<io::Result<Checkpoint>>,
    state: StateMachine,
}

impl RaftSnapshotBuilder<Types> for SnapshotBuilder {
    type SnapshotData = RowView;

    async fn build_snapshot(&mut self) -> io::Result<Snapshot> {
        if let Some(begun) = self.begun.take() {
            let checkpoint = begun?;
            let written = tokio::select! {
                biased;
                written = Runtime::spawn_blocking(|| checkpoint.write_when_there_is_room()) => written?,
                () = self.state.gives_up() => return Err(io::ErrorKind::StorageFull.into()),
            };
            match written {
                Err(error) if !self.state.queue.is_ending() => self.state.rows_failed(&error),
                written => written.map_err(io::Error::other)?,
            }
            self.state.checkpointed.notify_waiters();
        }
        let snapshot = self.state.snapshot()?;
        snapshot.ok_or_else(|| io::Error::other("there is no checkpoint yet"))
    }
}
