//! The host of a machine's groups. They have one log, one file of rows and one thread, and
//! connections with other machines are for all of them.
//!
//! No group waits for another on the thread. With several groups open, waits for the disk are on
//! threads beside it: one makes the log durable for all that wait, and a checkpoint takes along
//! those of others. A group that is alone waits on the thread itself, since no other would go on
//! meanwhile.

#[cfg(test)]
mod tests;

use crate::alarm::DiskAlarm;
use crate::disk::{Disk, Local};
use crate::group::{FirstState, Group, GroupError, GroupSettings, MemberPlace};
use crate::group_id::GroupId;
use crate::log::LogDevice;
use crate::lookout::Lookout;
use crate::peers::{Conversation, Ears};
use crate::store::{RowFile, StoreSettings};
use crate::{Deliver, Wires};
use directory::Registry;
use ident::ServerId;
use namespace::Attributes;
use parking_lot::Mutex;
use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The number of log segments that make a checkpoint necessary.
const SEGMENTS: u64 = 4;
/// The number of log segments written while a checkpoint is under way.
const SEGMENTS_MEANWHILE: u64 = 3;
/// How long a group that is opened again waits for the last tasks of its former member.
const FORMER_ENDS_WITHIN: Duration = Duration::from_secs(90);
/// The time between two looks whether it has let go.
const FORMER_LOOK: Duration = Duration::from_millis(5);

/// The files of a machine's groups.
#[derive(Clone, Debug)]
pub struct GroupFiles {
    /// Their directory.
    pub dir: PathBuf,
    /// The file that notes how far the log is durable, beside the directory. If older files of the
    /// log are put back, the mark shows it.
    pub mark: Option<PathBuf>,
    /// Whether they are not those of the last start: they are a copy, or were put back.
    pub moved: bool,
}

/// The host of a machine's groups, cheap to clone. Its thread ends with its last clone and its last
/// group, or with [`GroupHost::end`].
#[derive(Clone)]
pub struct GroupHost(Arc<HostParts>);

/// The parts of a host that its groups use.
pub(crate) struct HostParts {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) dir: PathBuf,
    pub(crate) moved: bool,
    pub(crate) settings: GroupSettings,
    pub(crate) log: Arc<LogDevice>,
    pub(crate) rows: Arc<RowFile>,
    pub(crate) lookout: Arc<Lookout>,
    pub(crate) ears: Arc<Ears>,
    pub(crate) alarm: DiskAlarm,
    thread: Mutex<Option<HostThread>>,
}

/// The thread of a host. It ends when `ends` is dropped.
struct HostThread {
    runtime: Handle,
    thread: JoinHandle<()>,
    ends: oneshot::Sender<()>,
}

impl HostParts {
    /// Returns the thread's number, if it has one.
    pub(crate) fn thread(&self) -> Option<ThreadId> {
        self.thread.lock().as_ref().map(|thread| thread.thread.thread().id())
    }

    /// Runs `work` on the thread. A host without a thread runs nothing.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Some(thread) = &*self.thread.lock() {
            drop(thread.runtime.spawn(work));
        }
    }

    fn end(&self) {
        let Some(HostThread { thread, ends, .. }) = self.thread.lock().take() else { return };
        drop(ends);
        // `deliver` may have held the last group. Then the thread ends after this call.
        if thread.thread().id() != std::thread::current().id() {
            // The thread returns nothing.
            let _ = thread.join();
        }
    }
}

impl Drop for HostParts {
    fn drop(&mut self) {
        self.end();
    }
}

impl GroupHost {
    /// Opens the host of a machine, with a thread for its groups. Their log and rows are begun if
    /// there are none.
    ///
    /// From then on damage is reported ([`crate::Event::Ended`]), and any other disk error stops
    /// the process ([`crate::EXIT_DISK`]).
    pub fn open(files: GroupFiles, settings: GroupSettings) -> Result<GroupHost, GroupError> {
        let host = GroupHost::start(Arc::new(Local), files, settings)?;
        let (tell, started) = sync_channel(1);
        let (ends, ended) = oneshot::channel::<()>();
        let lookout = host.0.lookout.clone();
        let thread = std::thread::Builder::new().name("directory".to_owned()).spawn(move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(tell.send(Err(GroupError::Thread(error)))),
            };
            drop(tell.send(Ok(runtime.handle().clone())));
            runtime.block_on(async {
                drop(tokio::spawn(async move { lookout.look_out().await }));
                // Its sender is dropped.
                let _ = ended.await;
            });
        });
        let thread = thread.map_err(GroupError::Thread)?;
        let runtime = started.recv().map_err(|error| GroupError::raft("starting", error))??;
        *host.0.thread.lock() = Some(HostThread { runtime, thread, ends });
        Ok(host)
    }

    /// Opens the host of a machine whose files are on `disk`. Its groups work where
    /// [`GroupHost::start_group`] is called.
    pub fn start(
        disk: Arc<dyn Disk>,
        files: GroupFiles,
        settings: GroupSettings,
    ) -> Result<GroupHost, GroupError> {
        let GroupFiles { dir, mark, moved } = files;
        let bounds = StoreSettings {
            cache_bytes: settings.memory_bytes / 2,
            overlay_bytes: settings.memory_bytes / 8,
        };
        let rows = disk.open_rows(&dir.join("rows"), bounds)?;
        let segment_bytes = settings.log_bytes / SEGMENTS;
        let keep_bytes = settings.log_bytes + SEGMENTS_MEANWHILE * segment_bytes;
        let log =
            LogDevice::open(disk.clone(), &dir.join("log"), segment_bytes, keep_bytes, mark.as_deref())?;
        let (lookout, ears, alarm, thread) = Default::default();
        let parts = HostParts { disk, dir, moved, settings, log, rows, lookout, ears, alarm, thread };
        Ok(GroupHost(Arc::new(parts)))
    }

    /// Opens this machine's member of a group, on the host's thread. See
    /// [`GroupHost::start_group`]. Must not be called on that thread.
    pub fn group(
        &self,
        id: GroupId,
        root: Attributes,
        place: MemberPlace,
        wires: Arc<dyn Wires>,
        deliver: Deliver,
    ) -> Result<Group, GroupError> {
        self.open_group(id, FirstState::Cluster(root), place, wires, deliver)
    }

    /// The same for the group of the server `number` beside the root server. A founder's state
    /// begins with the machines of `registry`, which is whole, at the time `at` (UTC seconds).
    pub fn group_beside(
        &self,
        (id, number): (GroupId, ServerId),
        (registry, at): (Registry, u64),
        place: MemberPlace,
        wires: Arc<dyn Wires>,
        deliver: Deliver,
    ) -> Result<Group, GroupError> {
        self.open_group(id, FirstState::Beside(number, registry, at), place, wires, deliver)
    }

    fn open_group(
        &self,
        id: GroupId,
        first: FirstState,
        place: MemberPlace,
        wires: Arc<dyn Wires>,
        deliver: Deliver,
    ) -> Result<Group, GroupError> {
        let Some(runtime) = self.0.thread.lock().as_ref().map(|thread| thread.runtime.clone()) else {
            return Err(GroupError::Closed);
        };
        let (tell, started) = sync_channel(1);
        let host = self.clone();
        runtime.spawn(async move {
            match host.begin_group(id, first, place, wires, deliver).await {
                Ok((group, works)) => {
                    // The group keeps the host.
                    drop(host);
                    drop(tell.send(Ok(group)));
                    works.await;
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        });
        started.recv().map_err(|_| GroupError::Closed)?
    }

    /// Starts this machine's member of a group. A founder's root has the attributes `root`. For a
    /// lone voter it returns when everything that was applied before is applied again. No event is
    /// delivered before [`Group::begin`]. Whenever this member begins to lead, it first proposes
    /// [`directory::Input::Lead`].
    ///
    /// It also returns the future that does the member's work from then on.
    pub async fn start_group(
        &self,
        id: GroupId,
        root: Attributes,
        place: MemberPlace,
        wires: Arc<dyn Wires>,
        deliver: Deliver,
    ) -> Result<(Group, impl Future<Output = ()> + Send + use<>), GroupError> {
        self.begin_group(id, FirstState::Cluster(root), place, wires, deliver).await
    }

    async fn begin_group(
        &self,
        id: GroupId,
        first: FirstState,
        place: MemberPlace,
        wires: Arc<dyn Wires>,
        deliver: Deliver,
    ) -> Result<(Group, impl Future<Output = ()> + Send + use<>), GroupError> {
        let let_go = async {
            while self.0.log.is_open(id) || self.0.rows.is_open(id) {
                tokio::time::sleep(FORMER_LOOK).await;
            }
        };
        // Calls under way hold it a little longer.
        tokio::time::timeout(FORMER_ENDS_WITHIN, let_go).await.map_err(|_| GroupError::Open)?;
        Group::start(self.0.clone(), id, first, place, wires, deliver).await
    }

    /// Begins a conversation with another machine, which calls over a new connection. It is for the
    /// members of all groups.
    pub fn listen(&self) -> Conversation {
        Conversation::with(self.0.ears.clone())
    }

    /// Runs `work` on the groups' thread, until it ends or the host does. It must not block.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(work);
    }

    /// Notes that a client sent a message.
    pub fn heard(&self) {
        self.0.lookout.heard();
    }

    /// Ends the thread, and all that works on it. Groups that were not shut down end as in a crash.
    pub fn end(&self) {
        self.0.end();
    }
}
