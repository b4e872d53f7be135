//! Sends the client's invalidations to the kernel.
//!
//! Trap: a notification may block on a lock that is held by a request which waits for us. So
//! notifications have threads of their own, and threads that serve requests never send any. A
//! recall waits for its notifications a bounded time only.

use client::{Entries, Invalidation};
use file_service::{CacheHolder, Seal};
use ident::FileId;
use lease::Label;
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::flight::Whose;
use crate::front::{Dirty, Drop, Front, Settled, Written};

/// Notifications in the queue, at most. Beyond this all entries and attributes are dropped instead.
/// Recalls of so many fields at once concern most of what the kernel has anyway.
const QUEUE_MAX: usize = 4096;

/// How long a recall waits for pages and attributes. A request that holds a page locked may itself
/// wait for the field that is recalled here.
const WAIT: Duration = Duration::from_millis(50);

/// How long a recall waits for entries before requests that hold their directory's lock give way.
/// It is longer than most requests hold the lock, and short beside the time for which the others
/// wait.
const GIVE_WAY: Duration = Duration::from_millis(20);

/// How long a recall waits for entries in all, before every entry in the kernel is dropped.
const LAST_RESORT: Duration = Duration::from_secs(3);

/// How often, until then, requests that keep the directory locked are asked to give way.
const AGAIN: Duration = Duration::from_millis(100);

/// How long a sender waits, between two notifications, for answers on their way. It is short, since
/// some of these answers wait for the very lease that is recalled. Meanwhile the sender sends no
/// other notification, and the recall that waits for that one would go on without it.
const SETTLE: Duration = Duration::from_millis(2);

/// How long a program may take to run again once it is answered, on a very busy machine. It is
/// longer than a recall waits: as with a notification that blocks, this one is sent even so.
const RUNS_AGAIN: Duration = Duration::from_secs(1);

/// The pause between two tries of a notification until then.
const TRY_EVERY: Duration = Duration::from_micros(100);

/// How often one notification is sent, at most, because answers were on their way meanwhile.
const ROUNDS_MAX: usize = 3;

/// The kernel's notifications. The kernel returns `NotFound` for a node that it does not have yet,
/// or no longer.
pub(crate) trait Kernel: Send + Sync + 'static {
    fn expire_entry(&self, dir: u64, name: &[u8]) -> io::Result<()>;
    fn invalidate_attributes(&self, node: u64) -> io::Result<()>;
    fn invalidate_pages(&self, node: u64) -> io::Result<()>;
    /// Has dirty data in `length` bytes from `offset` on written back, and then drops these pages.
    fn write_back(&self, node: u64, offset: u64, length: u64) -> io::Result<()>;
    fn drop_all_entries(&self) -> io::Result<()>;
}

/// Threads that send. Each may block on a page or directory whose request waits for a lease. It
/// then holds up no other thread's notification.
pub(crate) const SENDERS: usize = 8;

/// The queue of notifications for the kernel.
pub(crate) struct Notices {
    front: Arc<Front>,
    kernel: Box<dyn Kernel>,
    state: Mutex<NoticeState>,
    /// A notification was queued, or the mount has ended.
    queued: Condvar,
    /// A notification was sent, or the mount has ended.
    sent: Condvar,
}

#[derive(Default)]
struct NoticeState {
    /// Invalidations, and whether each is sent once more with no recall waiting for it.
    queue: VecDeque<(Invalidation, bool, Batch)>,
    /// Drops that requests wait for. They go before recalls, since a recall may wait for such a
    /// request.
    drops: VecDeque<(u64, Drop, Written)>,
    /// The queue overflowed. Everything in the kernel is dropped, and that counts for these
    /// batches.
    everything: Vec<Batch>,
    closed: bool,
}

/// The number of notifications that are still to be sent, of those queued together.
type Batch = Arc<AtomicUsize>;

impl CacheHolder for Notices {
    /// Trap: a notification is needed only for entries, attributes and pages that the kernel was
    /// given. An answer on its way counts as given.
    fn has(&self, what: &Invalidation) -> bool {
        let nodes = &self.front.nodes;
        match what {
            Invalidation::Entry(dir, folded) => nodes
                .of(dir)
                .into_iter()
                .any(|dir| nodes.has_entries(dir, Some(folded)) || !self.front.flight.idle(Whose::Node(dir))),
            Invalidation::Attributes(file) | Invalidation::Pages(file) => {
                !nodes.of(file).is_empty() || !self.front.flight.idle(Whose::Anyone)
            }
            // One request counts: that which changes a name of the directory is under way itself.
            Invalidation::Entries(dir) => nodes
                .of(dir)
                .into_iter()
                .any(|dir| nodes.has_entries(dir, None) || self.front.flight.under_way(Whose::Node(dir)) > 1),
            Invalidation::Everything => true,
        }
    }

    fn revoke(&self, what: &[Invalidation]) -> Seal<'_> {
        let had: Vec<Invalidation> = what.iter().filter(|what| self.has(what)).cloned().collect();
        // A recall waits until all that a program appends in one call has come. Otherwise another
        // machine could append in the middle of it.
        let appended = had.iter().filter_map(|what| match what {
            Invalidation::Pages(file) => Some(self.front.nodes.of(file)),
            _ => None,
        });
        let settled: Vec<Settled<'_>> =
            appended.flatten().map(|node| self.front.appends.settle(node)).collect();
        let before: Vec<Option<u64>> = had.iter().map(|what| self.quiet_since(what)).collect();
        self.queue_and_wait(&had);
        // Trap: a notification makes the kernel disregard attributes that are just being answered
        // (`attr_version`), and a read then ends where the file ended before. So only needed
        // notifications are sent. A copy is gone for good if no request has been under way since
        // before its invalidation.
        Box::new(move || {
            let brought_back = had
                .into_iter()
                .zip(before)
                .filter(|(what, before)| before.is_none() || self.quiet_since(what) != *before);
            let brought_back: Vec<Invalidation> = brought_back.map(|(what, _)| what).collect();
            Box::new(move || {
                let had = brought_back.into_iter().filter(|what| of_entries(what) || self.has(what));
                self.queue_as(had.collect(), true);
                drop(settled);
            })
        })
    }

    fn revoke_soon(&self, what: Vec<Invalidation>) {
        self.queue(what.into_iter().filter(|what| self.has(what)).collect());
    }
}

impl Dirty for Notices {
    fn drop_and_tell(&self, node: u64, what: Drop, then: Written) {
        self.state.lock().drops.push_back((node, what, then));
        self.queued.notify_one();
    }
}

impl Notices {
    pub(crate) fn new(front: Arc<Front>, kernel: Box<dyn Kernel>) -> Arc<Notices> {
        let notices = Arc::new(Notices {
            front,
            kernel,
            state: Mutex::default(),
            queued: Condvar::new(),
            sent: Condvar::new(),
        });
        let told_by: Arc<dyn Dirty> = notices.clone();
        notices.front.mapped.tell_by(Arc::downgrade(&told_by));
        notices
    }

    /// The requests whose answers may bring `what` back. These are all requests if the kernel does
    /// not have the file yet, or has it under several numbers.
    fn whose(&self, what: &Invalidation) -> Whose {
        match self.nodes_of(what)[..] {
            [node] => Whose::Node(node),
            _ => Whose::Anyone,
        }
    }

    fn nodes_of(&self, what: &Invalidation) -> SmallVec<[u64; 1]> {
        match what {
            Invalidation::Entry(file, _)
            | Invalidation::Entries(file)
            | Invalidation::Attributes(file)
            | Invalidation::Pages(file) => self.front.nodes.of(file),
            Invalidation::Everything => SmallVec::new(),
        }
    }

    /// The number of requests begun so far, if none is under way that may bring `what` back. If the
    /// number is the same later, no request has brought it back.
    fn quiet_since(&self, what: &Invalidation) -> Option<u64> {
        self.front.flight.quiet_since(self.whose(what))
    }

    fn queue_and_wait(&self, what: &[Invalidation]) {
        let (entries, others): (Vec<_>, Vec<_>) = what.iter().cloned().partition(of_entries);
        let began = Instant::now();
        let (left, others) = (self.queue(entries.clone()), self.queue(others));
        if !self.are_sent(&left, began + GIVE_WAY) {
            let dirs = self.go_without_entries(&entries);
            // Further requests may lock a directory meanwhile.
            let mut next = Instant::now();
            while next < began + LAST_RESORT && !self.are_sent(&left, next) {
                dirs.iter().for_each(|dir| self.front.give_way(dir));
                next = Instant::now() + AGAIN;
            }
            if !self.are_sent(&left, began + LAST_RESORT) {
                // Nothing else helps against a request that is neither answered nor gives way. Its
                // thread may have given way in the same system call already. Its system call may be
                // invisible, or one that does not try again (a bind, an NFS server). Or the server
                // may be carrying out the request already. Mounts within the mount do not survive
                // this.
                tracing::warn!(
                    ?entries,
                    "a directory stays locked in the kernel, so all entries of all directories are dropped"
                );
                log("all entries", self.kernel.drop_all_entries());
            }
        }
        if !self.are_sent(&others, began + WAIT) {
            tracing::debug!(?what, "the kernel is slow to let go");
        }
    }

    /// Waits until all of these are sent, but no longer than until `deadline`. Whether they are
    /// sent, or the mount has ended.
    fn are_sent(&self, left: &Batch, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while left.load(SeqCst) > 0 && !state.closed {
            if self.sent.wait_until(&mut state, deadline).timed_out() {
                return left.load(SeqCst) == 0;
            }
        }
        true
    }

    /// Queues all entries of these directories for expiry, and returns the directories. Requests
    /// that keep them locked give way next. Such a request comes again and may wait longer; it then
    /// holds up no later invalidation, since no entry is left there.
    fn go_without_entries(&self, entries: &[Invalidation]) -> Vec<FileId> {
        let mut dirs: Vec<FileId> = Vec::new();
        for what in entries {
            if let Invalidation::Entry(dir, _) | Invalidation::Entries(dir) = what
                && !dirs.contains(dir)
            {
                dirs.push(dir.clone());
            }
        }
        self.queue(dirs.iter().cloned().map(Invalidation::Entries).collect());
        dirs
    }

    /// Queues these invalidations, and returns the count of those that are still to be sent.
    fn queue(&self, what: Vec<Invalidation>) -> Batch {
        self.queue_as(what, false)
    }

    fn queue_as(&self, what: Vec<Invalidation>, again: bool) -> Batch {
        let left = Batch::new(AtomicUsize::new(what.len()));
        for what in what {
            let nodes = &self.front.nodes;
            match &what {
                Invalidation::Entry(dir, _) | Invalidation::Entries(dir) => {
                    nodes.of(dir).into_iter().for_each(|dir| nodes.contend(dir));
                }
                Invalidation::Attributes(file) | Invalidation::Pages(file) => match nodes.of(file) {
                    has if has.is_empty() => nodes.miss(),
                    has => has.into_iter().for_each(|node| nodes.doubt(node)),
                },
                Invalidation::Everything => {}
            }
            let mut state = self.state.lock();
            if state.queue.len() < QUEUE_MAX && what != Invalidation::Everything {
                state.queue.push_back((what, again, Arc::clone(&left)));
            } else {
                let NoticeState { queue, everything, .. } = &mut *state;
                everything.extend(queue.drain(..).map(|(.., batch)| batch).chain([Arc::clone(&left)]));
            }
            self.queued.notify_one();
        }
        left
    }

    /// Sends queued notifications until closed. [`SENDERS`] threads run it.
    pub(crate) fn run(&self) {
        loop {
            let mut state = self.state.lock();
            while state.queue.is_empty()
                && state.everything.is_empty()
                && state.drops.is_empty()
                && !state.closed
            {
                self.queued.wait(&mut state);
            }
            if state.closed {
                return;
            }
            if let Some((node, what, then)) = state.drops.pop_front() {
                drop(state);
                log("what is dirty", self.drop_of(node, what));
                then();
                continue;
            }
            let mut done = std::mem::take(&mut state.everything);
            let next = if done.is_empty() { state.queue.pop_front() } else { None };
            drop(state);
            match next {
                Some((what, again, batch)) => {
                    self.send(&what, again);
                    done.push(batch);
                }
                None => self.send_everything(),
            }
            let _state = self.state.lock();
            for batch in done {
                batch.fetch_sub(1, SeqCst);
            }
            self.sent.notify_all();
        }
    }

    /// Expires this name, so that the kernel asks before its next use. For a while the kernel keeps
    /// no entries of the directory. Blocks while the directory is locked.
    pub(crate) fn expire_name(&self, dir: &FileId, label: &Label) {
        for node in self.front.nodes.of(dir) {
            self.front.nodes.contend(node);
            if self.front.nodes.has_entry(node, label) {
                log(label, self.kernel.expire_entry(node, label.as_bytes()));
            }
        }
    }

    /// Ends all sending.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.front.nodes.close();
        self.queued.notify_all();
        self.sent.notify_all();
    }

    /// Sends one notification, and repeats it while answers on their way may bring the copy back.
    /// They were decided under the lease that is being recalled. Trap: reads are still answered
    /// while their pages are being invalidated; repeat until none was.
    fn send(&self, what: &Invalidation, again: bool) {
        let deadline = Instant::now() + SETTLE;
        for round in 0..ROUNDS_MAX {
            let (nodes, before) = (self.nodes_of(what), self.quiet_since(what));
            let whose = self.whose(what);
            // A file that is given meanwhile gets a time-out of 0:
            // [`Nodes::miss`](crate::nodes::Nodes::miss).
            if nodes.is_empty() {
                return;
            }
            let is_quiet = || before.is_some() && self.quiet_since(what) == before;
            for node in nodes {
                match what {
                    Invalidation::Entry(dir, folded) => {
                        self.expire(node, Some(folded), again || self.is_free(round, dir), &is_quiet);
                    }
                    Invalidation::Entries(dir) => {
                        self.expire(node, None, again || self.is_free(round, dir), &is_quiet);
                    }
                    what => log(what, self.notify_given(node, what)),
                }
            }
            if is_quiet() || !self.front.flight.settle(whose, deadline) {
                return;
            }
        }
    }

    /// Expires entries of `dir`: all, or those whose names fold to `folded`. The kernel looks an
    /// expired entry up before its next use. Entries are expired one by one, so that a mount or a
    /// working directory on an entry stays there if it is still the same file. An entry that was
    /// just given when it was expired before is expired once more only with `again`: no recall
    /// waits for that.
    fn expire(&self, dir: u64, folded: Option<&Label>, again: bool, is_quiet: &dyn Fn() -> bool) {
        // Trap: if there is no such entry, the directory's attributes are not refreshed either.
        // This notification goes first, since it cannot block.
        log("attributes", self.kernel.invalidate_attributes(dir));
        let mut entries = self.front.nodes.entries(dir, folded);
        entries.retain(|(_, when)| again || !when.was_told);
        self.expire_these(dir, &entries, is_quiet);
    }

    /// Whether a further round need not wait for requests that keep `dir` locked.
    fn is_free(&self, round: usize, dir: &FileId) -> bool {
        round > 0 && self.front.waits.locking(dir).is_empty()
    }

    fn expire_these(&self, dir: u64, entries: &Entries, is_quiet: &dyn Fn() -> bool) {
        for (label, _) in entries {
            log(label, self.kernel.expire_entry(dir, label.as_bytes()));
        }
        self.front.nodes.taken_back(dir, entries, !is_quiet());
    }

    /// Expires the oldest entries whenever the kernel has been given too many, until closed.
    pub(crate) fn run_short(&self) {
        while let Some(old) = self.front.nodes.crowded() {
            old.iter().for_each(|(dir, entries)| self.expire_these(*dir, entries, &|| false));
        }
    }

    /// Sends a notification for pages or attributes of `node`. Trap: the kernel has a file that was
    /// just looked up only once the asking program has run again. Until then a notification finds
    /// nothing, and the attributes that the lookup brought would stand for their whole time-out. So
    /// it is repeated while the node counts as given.
    fn notify_given(&self, node: u64, what: &Invalidation) -> io::Result<()> {
        let deadline = Instant::now() + RUNS_AGAIN;
        loop {
            let told = match what {
                Invalidation::Pages(_) | Invalidation::Everything => self.kernel.invalidate_pages(node),
                _ => self.kernel.invalidate_attributes(node),
            };
            match told {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    if self.front.nodes.file(node).is_err() {
                        return Ok(());
                    }
                    if Instant::now() >= deadline {
                        return Err(error);
                    }
                    std::thread::sleep(TRY_EVERY);
                }
                told => return told,
            }
        }
    }

    fn drop_of(&self, node: u64, what: Drop) -> io::Result<()> {
        match what {
            Drop::Attributes => self.kernel.invalidate_attributes(node),
            Drop::Pages(offset, length) => self.kernel.write_back(node, offset, length),
        }
    }

    fn send_everything(&self) {
        let idle = || self.front.flight.idle(Whose::Anyone);
        for node in self.front.nodes.all() {
            self.front.nodes.doubt(node);
            self.expire_these(node, &self.front.nodes.entries(node, None), &idle);
            log("everything", self.notify_given(node, &Invalidation::Everything));
        }
    }
}

fn of_entries(what: &Invalidation) -> bool {
    matches!(what, Invalidation::Entry(..) | Invalidation::Entries(_))
}

fn log(what: impl std::fmt::Debug, result: io::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(?what, %error, "a notification was not taken");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use file_service::Response;
    use namespace::{Attributes, Cred, Entry, Error, FileKind, Stat, Timestamp};

    use crate::front::LookedUp;
    use crate::groups::Asker;
    use crate::nodes::ROOT;

    /// Answers a lookup with `file`, after it has called `meanwhile`.
    #[derive(Default)]
    struct Door {
        file: Option<(Entry, Stat)>,
        meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    }

    impl file_service::FileService for Door {
        fn call(&self, _: &Cred, _: client::Call, answer: file_service::Responder) -> Option<client::Ticket> {
            let file = self.file.clone().ok_or(Error::CutOff);
            let meanwhile = self.meanwhile.lock().take();
            meanwhile.into_iter().for_each(|meanwhile| meanwhile());
            answer(file.map(|(entry, stat)| Response::Reply(client::Reply::Node(entry, stat))));
            None
        }

        fn root(&self) -> FileId {
            FileId::root()
        }

        fn cancel(&self, _: client::Ticket) {}

        fn give_way(&self, _: client::Ticket) {}
        fn forgotten(&self, _: Vec<FileId>) {}

        fn valid_for(&self) -> Duration {
            Duration::from_secs(30)
        }

        fn register_cache(&self, _: Arc<dyn CacheHolder>) {}
    }

    /// Notes each notification, and calls `meanwhile` at the first. It returns `NotFound` for the
    /// first `has_not` notifications.
    #[derive(Default)]
    struct Recorder {
        told: Mutex<Vec<String>>,
        meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
        has_not: AtomicUsize,
    }

    impl Recorder {
        fn note(&self, what: String) -> io::Result<()> {
            self.told.lock().push(what);
            let meanwhile = self.meanwhile.lock().take();
            meanwhile.into_iter().for_each(|meanwhile| meanwhile());
            let has_not = self.has_not.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
            if has_not { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) }
        }
    }

    impl Kernel for Arc<Recorder> {
        fn expire_entry(&self, dir: u64, name: &[u8]) -> io::Result<()> {
            self.note(format!("entry {dir} {}", name.escape_ascii()))
        }

        fn invalidate_attributes(&self, node: u64) -> io::Result<()> {
            self.note(format!("attributes {node}"))
        }

        fn invalidate_pages(&self, node: u64) -> io::Result<()> {
            self.note(format!("pages {node}"))
        }

        fn write_back(&self, node: u64, offset: u64, length: u64) -> io::Result<()> {
            self.note(format!("written back {node} {offset} {length}"))
        }

        fn drop_all_entries(&self) -> io::Result<()> {
            self.note("all entries".into())
        }
    }

    /// A file and its stat, as node 5.
    fn five() -> (FileId, Stat) {
        let at = Timestamp::default();
        let attributes = Attributes {
            kind: FileKind::Regular,
            mode: 0o644,
            uid: 0,
            gid: 0,
            links: 1,
            ino: 5,
            rdev: 0,
            ctime: at,
            btime: at,
            atime: at,
        };
        (FileId::root().child(9), Stat { attributes, size: 0, occupied: 0, mtime: at })
    }

    /// Notices that are sent to a recorder, and a file that the kernel has as node 5.
    fn sending() -> (Arc<Notices>, Arc<Recorder>, FileId) {
        let recorder: Arc<Recorder> = Arc::default();
        let notices = Notices::new(Front::new(Arc::new(Door::default())), Box::new(recorder.clone()));
        let (file, stat) = five();
        notices.front.nodes.give(&file, &stat).unwrap();
        (notices, recorder, file)
    }

    /// Sends all notifications: those queued, and those that `tell` queues. Returns what the
    /// recorder was told.
    fn told(notices: &Notices, recorder: &Arc<Recorder>, tell: impl FnOnce()) -> Vec<String> {
        std::thread::scope(|scope| {
            scope.spawn(|| notices.run());
            tell();
            // `revoke` waits a bounded time only. The one sender here sends this last, and it is a
            // notification of no node.
            let last = notices.queue(vec![Invalidation::Attributes(FileId::root().child(7))]);
            let mut state = notices.state.lock();
            while last.load(SeqCst) > 0 {
                notices.sent.wait(&mut state);
            }
            drop(state);
            notices.close();
        });
        recorder.told.lock().clone()
    }

    fn entry(name: &str) -> Invalidation {
        Invalidation::Entry(FileId::root(), Label::new(name.as_bytes()).unwrap())
    }

    #[test]
    fn what_the_kernel_was_not_given_is_not_told() {
        let (notices, recorder, file) = sending();
        notices.front.nodes.give_entry(ROOT, &Label::new(b"given").unwrap());
        let told = told(&notices, &recorder, || {
            let strange = Invalidation::Pages(FileId::root().child(8));
            notices.revoke(&[entry("not given"), strange, entry("given"), Invalidation::Attributes(file)])()(
            );
        });
        assert_eq!(told, ["attributes 1", "entry 1 given", "attributes 5"]);
        assert!(notices.front.nodes.may_have_setid(5), "what changed may be the mode");
    }

    #[test]
    fn what_the_kernel_is_about_to_have_is_waited_for() {
        let (notices, recorder, file) = sending();
        recorder.has_not.store(3, SeqCst);
        let pages = [Invalidation::Pages(file)];
        assert_eq!(told(&notices, &recorder, || drop(notices.revoke(&pages))), ["pages 5"; 4]);
        // An invalidation of everything repeats as well: two nodes, of which the first is told
        // three times.
        let (notices, recorder, _) = sending();
        recorder.has_not.store(2, SeqCst);
        let everything = told(&notices, &recorder, || drop(notices.revoke(&[Invalidation::Everything])));
        assert_eq!(everything.len(), 4, "{everything:?}");
        // A node that the kernel has forgotten is not repeated.
        let (notices, recorder, _) = sending();
        recorder.has_not.store(1000, SeqCst);
        let front = Arc::clone(&notices.front);
        *recorder.meanwhile.lock() = Some(Box::new(move || assert!(front.nodes.forget(5, 1).is_none())));
        assert_eq!(told(&notices, &recorder, || drop(notices.revoke(&pages))), ["pages 5"]);
    }

    #[test]
    fn what_is_taken_back_before_it_is_given_is_given_for_no_time() {
        let (file, stat) = five();
        let (position, ino, kind) = (3, 5, FileKind::Regular);
        let entry = Entry { file: file.clone(), position, ino, kind };
        let door = Arc::new(Door { file: Some((entry, stat)), ..Door::default() });
        let recorder: Arc<Recorder> = Arc::default();
        let notices = Notices::new(Front::new(door.clone()), Box::new(recorder.clone()));
        let look = || {
            let (tell, told) = std::sync::mpsc::channel();
            notices.front.lookup(Asker::KERNEL, ROOT, b"x", move |found| tell.send(found).unwrap());
            let Ok(Ok(LookedUp::File(shown))) = told.recv() else { panic!("nothing found") };
            assert!(notices.front.nodes.forget(5, 1).is_none());
            shown.ttl
        };
        assert_eq!(look(), Duration::from_secs(30));
        let taking_back = Arc::clone(&notices);
        *door.meanwhile.lock() = Some(Box::new(move || {
            // As if a request had been under way since before.
            taking_back.front.flight.begin(ROOT);
            taking_back.revoke_soon(vec![Invalidation::Pages(file)]);
            taking_back.front.flight.end(ROOT);
        }));
        assert_eq!(look(), Duration::ZERO);
        assert!(told(&notices, &recorder, || {}).is_empty(), "there was no node");
        assert_eq!(look(), Duration::from_secs(30));
    }

    #[test]
    fn pages_are_dropped_until_no_read_was_answered_meanwhile() {
        let (notices, recorder, file) = sending();
        let front = Arc::clone(&notices.front);
        *recorder.meanwhile.lock() = Some(Box::new(move || {
            front.flight.begin(5);
            front.flight.end(5);
        }));
        assert_eq!(
            told(&notices, &recorder, || drop(notices.revoke(&[Invalidation::Pages(file)]))),
            ["pages 5", "pages 5"]
        );
    }

    #[test]
    fn what_was_answered_before_the_lease_went_is_taken_back_again() {
        let (notices, recorder, file) = sending();
        let pages = [Invalidation::Pages(file)];
        let quiet = told(&notices, &recorder, || notices.revoke(&pages)()());
        assert_eq!(quiet, ["pages 5"], "the next answers are under the next lease, and stay");
        let (notices, recorder, _) = sending();
        let flight = &notices.front.flight;
        let read_meanwhile = || {
            let again = notices.revoke(&pages);
            flight.begin(5);
            flight.end(5);
            again()();
        };
        assert_eq!(told(&notices, &recorder, read_meanwhile), ["pages 5", "pages 5"]);
        let (notices, recorder, _) = sending();
        let flight = &notices.front.flight;
        let read_afterwards = || {
            let again = notices.revoke(&pages)();
            flight.begin(5);
            flight.end(5);
            again();
        };
        assert_eq!(
            told(&notices, &recorder, read_afterwards),
            ["pages 5"],
            "that would make the kernel disregard what it is told"
        );
    }

    #[test]
    fn a_notification_that_blocks_holds_up_no_other() {
        let (notices, recorder, file) = sending();
        notices.front.nodes.give_entry(ROOT, &Label::new(b"given").unwrap());
        let blocked = Arc::clone(&recorder);
        *recorder.meanwhile.lock() = Some(Box::new(move || {
            while blocked.told.lock().len() < 3 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }));
        std::thread::scope(|scope| {
            (0..2).for_each(|_| drop(scope.spawn(|| notices.run())));
            notices.revoke_soon(vec![Invalidation::Pages(file)]);
            while recorder.told.lock().is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
            notices.revoke_soon(vec![entry("given")]);
            while recorder.told.lock().len() < 3 {
                std::thread::sleep(Duration::from_millis(1));
            }
            notices.close();
        });
        assert_eq!(recorder.told.lock()[..], ["pages 5", "attributes 1", "entry 1 given"]);
    }

    #[test]
    fn a_lease_on_a_name_is_of_all_that_fold_to_it() {
        let (notices, recorder, _) = sending();
        for name in ["README", "Readme", "other"] {
            notices.front.nodes.give_entry(ROOT, &Label::new(name.as_bytes()).unwrap());
        }
        let told = told(&notices, &recorder, || drop(notices.revoke(&[entry("readme")])));
        assert_eq!(told, ["attributes 1", "entry 1 README", "entry 1 Readme"]);
        assert!(!notices.has(&entry("readme")) && notices.has(&entry("other")));
    }

    #[test]
    fn all_entries_of_a_directory_go_one_by_one() {
        let (notices, recorder, _) = sending();
        for name in ["README", "other"] {
            notices.front.nodes.give_entry(ROOT, &Label::new(name.as_bytes()).unwrap());
        }
        let entries = [Invalidation::Entries(FileId::root())];
        let mut told = told(&notices, &recorder, || drop(notices.revoke(&entries)));
        told.sort();
        // One is sent again if it took long, on a machine with much to do.
        told.dedup();
        assert_eq!(told, ["attributes 1", "entry 1 README", "entry 1 other"]);
        assert!(!notices.has(&entries[0]), "they are told once");
    }

    /// A file service whose every call waits until it gives way.
    #[derive(Default)]
    struct Waiting(Mutex<Vec<(client::Ticket, file_service::Responder)>>);

    impl file_service::FileService for Waiting {
        fn call(&self, _: &Cred, _: client::Call, answer: file_service::Responder) -> Option<client::Ticket> {
            let ticket = client::Ticket(1);
            self.0.lock().push((ticket, answer));
            Some(ticket)
        }

        fn cancel(&self, _: client::Ticket) {}

        fn forgotten(&self, _: Vec<FileId>) {}

        fn give_way(&self, ticket: client::Ticket) {
            let answers: Vec<_> = self.0.lock().extract_if(.., |(waits, _)| *waits == ticket).collect();
            answers.into_iter().for_each(|(_, answer)| answer(Err(Error::Interrupted)));
        }

        fn root(&self) -> FileId {
            FileId::root()
        }

        fn valid_for(&self) -> Duration {
            Duration::from_secs(30)
        }

        fn register_cache(&self, _: Arc<dyn CacheHolder>) {}
    }

    /// A kernel that expires an entry under its directory's lock. A request holds that lock until
    /// it is answered.
    #[derive(Default)]
    struct Locking {
        recorder: Arc<Recorder>,
        locked: Mutex<bool>,
        unlocked: Condvar,
    }

    impl Kernel for Arc<Locking> {
        fn write_back(&self, _: u64, _: u64, _: u64) -> io::Result<()> {
            Ok(())
        }

        fn expire_entry(&self, dir: u64, name: &[u8]) -> io::Result<()> {
            let mut locked = self.locked.lock();
            while *locked {
                self.unlocked.wait(&mut locked);
            }
            self.recorder.expire_entry(dir, name)
        }

        fn invalidate_attributes(&self, node: u64) -> io::Result<()> {
            self.recorder.invalidate_attributes(node)
        }

        fn invalidate_pages(&self, node: u64) -> io::Result<()> {
            self.recorder.invalidate_pages(node)
        }

        fn drop_all_entries(&self) -> io::Result<()> {
            let told = self.recorder.drop_all_entries();
            self.unlock();
            told
        }
    }

    impl Locking {
        fn unlock(&self) {
            *self.locked.lock() = false;
            self.unlocked.notify_all();
        }
    }

    /// Thread `tid` makes a name in a directory, keeps it locked and waits. Meanwhile an entry of
    /// the directory is invalidated. Returns the error of the request, and what the kernel was
    /// told.
    fn taken_back_from_locked(tid: u32) -> (Option<crate::errno::Errno>, Vec<String>) {
        let kernel: Arc<Locking> = Arc::default();
        let notices = Notices::new(Front::new(Arc::new(Waiting::default())), Box::new(Arc::clone(&kernel)));
        for name in ["README", "other"] {
            notices.front.nodes.give_entry(ROOT, &Label::new(name.as_bytes()).unwrap());
        }
        *kernel.locked.lock() = true;
        let (asker, answered) = (
            Asker { uid: 0, gid: 0, pid: tid, request: 1, keeps_set_ids: false },
            Arc::<Mutex<Option<_>>>::default(),
        );
        let (unlocks, tells) = (Arc::clone(&kernel), Arc::clone(&answered));
        let new = crate::front::NewNode::new(FileKind::Directory, 0o755, 0);
        notices.front.flight.begin(ROOT);
        let front = Arc::clone(&notices.front);
        notices.front.make(asker, ROOT, b"new", new, move |made| {
            *tells.lock() = made.err();
            front.flight.end(ROOT);
            unlocks.unlock();
        });
        let told = told(&notices, &kernel.recorder, || drop(notices.revoke(&[entry("readme")])));
        (*answered.lock(), told)
    }

    #[test]
    fn whoever_keeps_a_directory_locked_gives_way() {
        // A thread in a system call that goes by a path.
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
        let (tell, tid) = std::sync::mpsc::channel();
        let path = pipe.clone();
        let opens = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid().as_raw_nonzero().get() as u32).unwrap();
            std::fs::File::open(path).unwrap()
        });
        let tid = tid.recv().unwrap();
        while crate::syscall::retries(tid).is_none() {
            std::thread::yield_now();
        }
        let (answered, mut told) = taken_back_from_locked(tid);
        assert_eq!(answered, Some(crate::errno::Errno(libc::EINTR)));
        told.sort();
        told.dedup();
        assert_eq!(
            told,
            ["attributes 1", "entry 1 README", "entry 1 other"],
            "all of it, and nothing else's"
        );
        drop(std::fs::OpenOptions::new().write(true).open(pipe).unwrap());
        drop(opens.join().unwrap());
    }

    #[test]
    fn nobody_gives_way_of_whom_it_is_not_known_that_it_tries_again() {
        let (answered, told) = taken_back_from_locked(u32::MAX);
        assert!(answered.is_none() && told.contains(&"all entries".to_owned()), "{answered:?}: {told:?}");
    }

    #[test]
    fn an_overflow_drops_everything() {
        let (notices, recorder, file) = sending();
        for _ in 0..QUEUE_MAX {
            notices.queue(vec![entry("x")]);
        }
        notices.queue(vec![Invalidation::Attributes(file)]);
        notices.front.nodes.give_entry(ROOT, &Label::new(b"given").unwrap());
        let mut told = told(&notices, &recorder, || {});
        told.sort();
        assert_eq!(told, ["entry 1 given", "pages 1", "pages 5"]);
        assert!(notices.state.lock().queue.is_empty());
    }
}
