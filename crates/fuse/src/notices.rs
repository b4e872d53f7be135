//! Sends the client's invalidations to the kernel.
//!
//! Trap: a notification may block on a lock that is held by a request which waits for us. So
//! notifications have threads of their own, and threads that serve requests never send any. A
//! recall waits for its notifications a bounded time only.

use client::{Entries, Invalidation};
use file_service::{CacheHolder, Revocation, Seal};
use ident::FileId;
use lease::Label;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::barred::RevocationGuard;
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

/// The time after which an answer that was under way has arrived in the kernel, however busy the
/// machine, unless its request waits. Then it was not decided yet.
const ARRIVES: Duration = Duration::from_millis(100);

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
    queue: VecDeque<Notice>,
    /// Directories whose entries are just being expired, each by one thread. A directory that stays
    /// locked holds up no other thread.
    expiring: Vec<FileId>,
    /// Invalidations that are sent for the last time when that is due.
    last: VecDeque<(Instant, Invalidation)>,
    /// Drops that requests wait for. They go before recalls, since a recall may wait for such a
    /// request.
    drops: VecDeque<(u64, Drop, Written)>,
    /// How many notifications of attributes or pages of a file are queued or being sent.
    pending: FxHashMap<FileId, usize>,
    /// The queue overflowed. Everything in the kernel is dropped, and that counts for these
    /// batches.
    everything: Vec<Batch>,
    closed: bool,
}

/// A notification in the queue.
struct Notice {
    what: Invalidation,
    sending: Sending,
    batch: Batch,
}

/// The next thing for a sender to do.
enum Next {
    Drop(u64, Drop, Written),
    Everything(Vec<Batch>),
    /// Notifications for one file. More than one only for entries of one directory.
    Notices(Vec<Notice>),
}

impl NoticeState {
    fn next(&mut self, now: Instant) -> Option<Next> {
        if let Some((node, what, then)) = self.drops.pop_front() {
            return Some(Next::Drop(node, what, then));
        }
        // They have waited longer than all that is queued.
        let due = self.last.partition_point(|(due, _)| *due <= now);
        for (_, what) in self.last.drain(..due).rev() {
            let batch = Batch::new(AtomicUsize::new(1));
            self.queue.push_front(Notice { what, sending: Sending::Last, batch });
        }
        if !self.everything.is_empty() {
            return Some(Next::Everything(std::mem::take(&mut self.everything)));
        }
        let at = self.queue.iter().position(|notice| match locked_by(&notice.what) {
            Some(dir) => !self.expiring.contains(dir),
            None => true,
        })?;
        let first = self.queue.remove(at)?;
        let Some(dir) = locked_by(&first.what).cloned() else { return Some(Next::Notices(vec![first])) };
        let goes_along =
            |notice: &Notice| locked_by(&notice.what) == Some(&dir) && notice.sending == first.sending;
        let (others, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.queue).into_iter().partition(goes_along);
        self.queue = rest.into();
        self.expiring.push(dir);
        Some(Next::Notices(std::iter::once(first).chain(others).collect()))
    }

    /// A notification is queued.
    fn begins(&mut self, what: &Invalidation) {
        if let Some(file) = what.file().filter(|_| !of_entries(what)) {
            *self.pending.entry(file.clone()).or_default() += 1;
        }
    }

    /// Notifications for one file are sent.
    fn sent(&mut self, notices: &[Notice]) {
        let dir = notices.first().and_then(|notice| locked_by(&notice.what));
        if let Some(at) = self.expiring.iter().position(|expiring| Some(expiring) == dir) {
            self.expiring.swap_remove(at);
        }
        notices.iter().for_each(|notice| ends(&mut self.pending, &notice.what));
    }
}

/// A notification is not queued any more.
fn ends(pending: &mut FxHashMap<FileId, usize>, what: &Invalidation) {
    let Some(file) = what.file().filter(|_| !of_entries(what)) else { return };
    if let Some(count) = pending.get_mut(file) {
        *count -= 1;
        if *count == 0 {
            pending.remove(file);
        }
    }
}

/// Whether pages go with it.
fn drops_pages(what: &Invalidation) -> bool {
    matches!(what, Invalidation::Pages(_) | Invalidation::Caching(..))
}

/// The directory whose lock the kernel takes for it.
fn locked_by(what: &Invalidation) -> Option<&FileId> {
    what.file().filter(|_| of_entries(what))
}

/// Why an invalidation is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    /// A recall waits for it.
    First,
    /// The leases have gone, and an answer may have brought the copy back before. Nothing waits.
    Second,
    /// The answer was still under way then.
    Last,
}

/// The number of notifications that are still to be sent, of those queued together.
type Batch = Arc<AtomicUsize>;

impl CacheHolder for Notices {
    fn revoke(&self, what: &[Invalidation], offered: &[Invalidation]) -> Revocation<'_> {
        let mut revoked = self.note(what);
        let (busy, idle): (Vec<_>, Vec<_>) = offered.iter().cloned().partition(|what| self.is_busy(what));
        let offered = self.note(&idle);
        // A recall waits until all that a program appends in one call has come. Otherwise another
        // machine could append in the middle of it.
        let appended = revoked.iter().chain(&offered).flat_map(|it| self.appended(&it.what));
        let settled: Vec<Settled<'_>> = appended.map(|node| self.front.appends.settle(node)).collect();
        let had = |revoked: &[Revoked<'_>]| -> Vec<Invalidation> {
            revoked.iter().filter(|it| it.had).map(|it| it.what.clone()).collect()
        };
        let mut kept = self.queue_and_wait(&had(&revoked), had(&offered));
        kept.extend(busy.iter().filter_map(Invalidation::file).cloned());
        revoked.extend(offered.into_iter().filter(|it| !it.what.file().is_some_and(|it| kept.contains(it))));
        Revocation { seal: self.seal(revoked, settled), kept }
    }

    fn revoke_uncached(&self, what: &[Invalidation]) -> Option<Seal<'_>> {
        let revoked = self.note(what);
        let waits = |it: &Revoked<'_>| it.had || !self.appended(&it.what).is_empty();
        (!revoked.iter().any(waits)).then(|| self.seal(revoked, Vec::new()))
    }

    fn revoke_soon(&self, what: Vec<Invalidation>) {
        self.bar(what.iter());
        self.queue(what.into_iter().filter(|what| self.has(what)).collect());
    }
}

/// An item that is being revoked.
struct Revoked<'a> {
    what: Invalidation,
    /// Of attributes or pages: what is told meanwhile is told for no time.
    _revoking: Option<RevocationGuard<'a>>,
    /// The requests that may bring it back, and [`Flight::quiet_since`](crate::flight::Flight) of
    /// them before the first phase.
    whose: Whose,
    quiet: Option<u64>,
    had: bool,
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

    /// Whether the kernel may hold any of `what`, or is just being told to drop it. Trap: an answer
    /// on its way may be given after this; see [`Notices::bar`].
    fn has(&self, what: &Invalidation) -> bool {
        let nodes = &self.front.nodes;
        let has_entries = |dir, folded| nodes.of(dir).into_iter().any(|dir| nodes.has_entries(dir, folded));
        match what {
            Invalidation::Entry(dir, folded) => has_entries(dir, Some(folded)),
            Invalidation::Entries(dir) => has_entries(dir, None),
            Invalidation::Attributes(file) | Invalidation::Pages(file) | Invalidation::Caching(file, _) => {
                self.holds(what) || self.state.lock().pending.contains_key(file)
            }
            Invalidation::Everything => true,
        }
    }

    /// Whether the kernel may hold any of these attributes or pages.
    fn holds(&self, what: &Invalidation) -> bool {
        let nodes = &self.front.nodes;
        let holds = |node: u64| nodes.has_attributes(node) || drops_pages(what) && nodes.has_pages(node);
        self.nodes_of(what).into_iter().any(holds)
    }

    /// The nodes to which a program may be appending while this is revoked.
    fn appended(&self, what: &Invalidation) -> SmallVec<[u64; 1]> {
        if drops_pages(what) { self.nodes_of(what) } else { SmallVec::new() }
    }

    fn note(&self, what: &[Invalidation]) -> Vec<Revoked<'_>> {
        let note = |what: &Invalidation| {
            let file = what.file().filter(|_| !of_entries(what));
            let _revoking = file.map(|file| self.front.nodes.revoke(file));
            // Before the look: what is given between the two counts as brought back.
            let whose = self.whose(what);
            let quiet = self.front.flight.quiet_since(whose);
            Revoked { what: what.clone(), _revoking, whose, quiet, had: self.has(what) }
        };
        what.iter().map(note).collect()
    }

    /// The second phase. Trap: a notification makes the kernel disregard attributes that are just
    /// being answered (`attr_version`), and a read then ends where the file ended before. So only
    /// needed notifications are sent.
    fn seal<'a>(&'a self, revoked: Vec<Revoked<'a>>, settled: Vec<Settled<'a>>) -> Seal<'a> {
        Box::new(move || {
            self.bar(revoked.iter().map(|revoked| &revoked.what));
            let again = revoked.iter().filter_map(|revoked| self.brought_back(revoked)).collect();
            Box::new(move || {
                self.queue_as(again, Sending::Second);
                drop(settled);
            })
        })
    }

    /// The part of the item that answers since the first phase may have brought back.
    fn brought_back(&self, Revoked { what, whose, quiet, had, .. }: &Revoked<'_>) -> Option<Invalidation> {
        // A copy is gone for good if no request has been under way since before its invalidation.
        let is_quiet = || quiet.is_some() && self.front.flight.quiet_since(*whose) == *quiet;
        let is_back = match what {
            Invalidation::Entry(..) | Invalidation::Entries(_) if *had => !is_quiet(),
            Invalidation::Entry(..) | Invalidation::Entries(_) => self.has(what),
            // Nodes are marked before an answer is given.
            Invalidation::Attributes(_) | Invalidation::Pages(_) | Invalidation::Caching(..) => {
                self.holds(what)
            }
            Invalidation::Everything => *had && !is_quiet(),
        };
        is_back.then(|| what.clone())
    }

    /// From now on the kernel may hold none of `what` of an answer that was decided before and not
    /// yet given.
    fn bar<'a>(&self, what: impl Iterator<Item = &'a Invalidation>) {
        let nodes = &self.front.nodes;
        for what in what {
            match what {
                Invalidation::Entry(dir, _) | Invalidation::Entries(dir) => {
                    nodes.of(dir).into_iter().for_each(|dir| nodes.bar_entries(dir));
                }
                Invalidation::Attributes(file)
                | Invalidation::Pages(file)
                | Invalidation::Caching(file, _) => nodes.bar(file),
                Invalidation::Everything => nodes.bar_everything(),
            }
        }
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
        what.file().map_or_else(SmallVec::new, |file| self.front.nodes.of(file))
    }

    /// The number of requests begun so far, if none is under way that may bring `what` back. If the
    /// number is the same later, no request has brought it back.
    fn quiet_since(&self, what: &Invalidation) -> Option<u64> {
        self.front.flight.quiet_since(self.whose(what))
    }

    /// Whether a call in progress would have to be waited for before `what` is gone.
    fn is_busy(&self, what: &Invalidation) -> bool {
        match what {
            Invalidation::Entry(dir, _) | Invalidation::Entries(dir) => {
                !self.front.waits.locking(dir).is_empty()
            }
            Invalidation::Pages(file) | Invalidation::Caching(file, _) => {
                self.front.nodes.of(file).into_iter().any(|node| self.front.appends.is_appended(node))
            }
            Invalidation::Attributes(_) | Invalidation::Everything => false,
        }
    }

    /// Sends these notifications, and waits for them. Nothing is done about a directory that stays
    /// locked if only items that are `offered` wait for it. Returns the files of those that are not
    /// sent in time.
    fn queue_and_wait(&self, what: &[Invalidation], offered: Vec<Invalidation>) -> BTreeSet<FileId> {
        let (entries, others): (Vec<_>, Vec<_>) = what.iter().cloned().partition(of_entries);
        let began = Instant::now();
        let (left, others) = (self.queue(entries.clone()), self.queue(others));
        let (offered, mut kept) = self.queue_offered(offered);
        if !self.are_sent(&left, began + GIVE_WAY) {
            let dirs = self.go_without_entries(&entries);
            self.front.barrier.close(&dirs);
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
            self.front.barrier.open(&dirs);
        }
        if !self.are_sent(&others, began + WAIT) {
            tracing::debug!(?what, "the kernel is slow to drop what it cached");
        }
        let late = offered.into_iter().filter(|(_, left)| !self.are_sent(left, began + WAIT));
        kept.extend(late.map(|(file, _)| file));
        kept
    }

    /// Queues each of these by itself, as many as crowd nothing else out. Returns the files of the
    /// others, too.
    fn queue_offered(&self, mut offered: Vec<Invalidation>) -> (Vec<(FileId, Batch)>, BTreeSet<FileId>) {
        let room = (QUEUE_MAX / 2).saturating_sub(self.state.lock().queue.len());
        let others = offered.split_off(room.min(offered.len()));
        let kept = others.iter().filter_map(Invalidation::file).cloned().collect();
        let with_file = |what: Invalidation| Some((what.file()?.clone(), self.queue(vec![what])));
        (offered.into_iter().filter_map(with_file).collect(), kept)
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
        for dir in entries.iter().filter_map(locked_by) {
            if !dirs.contains(dir) {
                dirs.push(dir.clone());
            }
        }
        self.queue(dirs.iter().cloned().map(Invalidation::Entries).collect());
        dirs
    }

    /// Queues these invalidations, and returns the count of those that are still to be sent.
    fn queue(&self, what: Vec<Invalidation>) -> Batch {
        self.queue_as(what, Sending::First)
    }

    fn queue_as(&self, what: Vec<Invalidation>, sending: Sending) -> Batch {
        let left = Batch::new(AtomicUsize::new(what.len()));
        for what in what {
            let nodes = &self.front.nodes;
            if let Some(dir) = locked_by(&what) {
                nodes.of(dir).into_iter().for_each(|dir| nodes.contend(dir));
            }
            let mut state = self.state.lock();
            if state.queue.len() < QUEUE_MAX && what != Invalidation::Everything {
                state.begins(&what);
                state.queue.push_back(Notice { what, sending, batch: Arc::clone(&left) });
            } else {
                let NoticeState { queue, everything, pending, .. } = &mut *state;
                let queued = queue.drain(..).inspect(|notice| ends(pending, &notice.what));
                everything.extend(queued.map(|notice| notice.batch).chain([Arc::clone(&left)]));
            }
            self.queued.notify_one();
        }
        left
    }

    /// Sends queued notifications until closed. [`SENDERS`] threads run it.
    pub(crate) fn run(&self) {
        loop {
            let mut state = self.state.lock();
            let next = loop {
                if state.closed {
                    return;
                }
                if let Some(next) = state.next(Instant::now()) {
                    break next;
                }
                match state.last.front() {
                    Some((due, _)) => {
                        let due = *due;
                        self.queued.wait_until(&mut state, due);
                    }
                    None => self.queued.wait(&mut state),
                }
            };
            drop(state);
            let done = match next {
                Next::Drop(node, what, then) => {
                    log("what is dirty", self.drop_of(node, what));
                    then();
                    continue;
                }
                Next::Everything(done) => {
                    self.send_everything();
                    done
                }
                Next::Notices(notices) => {
                    self.send(&notices);
                    self.state.lock().sent(&notices);
                    // Notices that waited for this directory can be sent now.
                    self.queued.notify_one();
                    notices.into_iter().map(|notice| notice.batch).collect()
                }
            };
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

    /// Sends notifications for one file.
    fn send(&self, notices: &[Notice]) {
        match notices {
            [Notice { what, sending, .. }] if !of_entries(what) => self.send_of_file(what, *sending),
            entries => self.send_of_entries(entries),
        }
    }

    /// Sends a notification for attributes or pages. Trap: reads are still answered while their
    /// pages are being invalidated under the lease that is being recalled; repeat until none was.
    ///
    /// The kernel waits for the pages of requests under way, and disregards attributes of requests
    /// that began before. After the lease has gone it is told once: more would have it disregard
    /// attributes of the next lease.
    fn send_of_file(&self, what: &Invalidation, sending: Sending) {
        if self.is_dropped(what) {
            return;
        }
        let rounds = if sending == Sending::First { ROUNDS_MAX } else { 1 };
        for _ in 0..rounds {
            for node in self.nodes_of(what) {
                self.front.intake.settle(node);
                self.front.nodes.dropped(node, drops_pages(what));
                log(what, self.notify_given(node, what));
            }
            if !self.holds(what) {
                return;
            }
        }
    }

    /// Whether the kernel holds none of these attributes or pages any more: no other notification
    /// of the file is still being sent, and nothing was given since the last one.
    fn is_dropped(&self, what: &Invalidation) -> bool {
        let pending = what.file().and_then(|file| self.state.lock().pending.get(file).copied());
        pending == Some(1) && !self.holds(what)
    }

    /// Expires entries of one directory, and repeats that while answers on their way may bring them
    /// back. They were decided under the lease that is being recalled.
    fn send_of_entries(&self, notices: &[Notice]) {
        let Some(Notice { what: first, sending, .. }) = notices.first() else { return };
        let again = *sending != Sending::First;
        let deadline = Instant::now() + SETTLE;
        for round in 0..ROUNDS_MAX {
            let (nodes, before) = (self.nodes_of(first), self.quiet_since(first));
            let whose = self.whose(first);
            // A file that is given meanwhile gets a time-out of 0:
            // [`Nodes::bar`](crate::nodes::Nodes::bar).
            if nodes.is_empty() {
                return;
            }
            let is_quiet = || before.is_some() && self.quiet_since(first) == before;
            let Some(dir) = locked_by(first) else { return };
            for node in nodes {
                // Trap: if there is no such entry, the directory's attributes are not refreshed
                // either. This notification goes first, since it cannot block.
                log("attributes", self.kernel.invalidate_attributes(node));
                for Notice { what, .. } in notices {
                    self.expire(node, what, again || self.is_free(round, dir), &is_quiet);
                }
            }
            if is_quiet() {
                return;
            }
            if !self.front.flight.settle(whose, deadline) {
                if *sending == Sending::Second {
                    let due = Instant::now() + ARRIVES;
                    let last = notices.iter().map(|notice| (due, notice.what.clone()));
                    self.state.lock().last.extend(last);
                    self.queued.notify_one();
                }
                return;
            }
        }
    }

    /// Expires entries of `dir`: all, or those whose names fold to one. The kernel looks an expired
    /// entry up before its next use. Entries are expired one by one, so that a mount or a working
    /// directory on an entry stays there if it is still the same file. An entry that was just given
    /// when it was expired before is expired once more only with `again`: no recall waits for that.
    fn expire(&self, dir: u64, what: &Invalidation, again: bool, is_quiet: &dyn Fn() -> bool) {
        let folded = match what {
            Invalidation::Entry(_, folded) => Some(folded),
            _ => None,
        };
        let mut entries = self.front.nodes.entries(dir, folded);
        entries.retain(|(_, when)| again || !when.was_told);
        self.expire_these(dir, &entries, is_quiet);
    }

    /// Whether a further round need not wait for requests that keep `dir` locked. Trap: a thread
    /// that gave way may have locked the directory again, and its request is still to come.
    fn is_free(&self, round: usize, dir: &FileId) -> bool {
        round > 0 && self.front.gave.is_empty(Instant::now) && self.front.waits.locking(dir).is_empty()
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
                Invalidation::Pages(_) | Invalidation::Caching(_, _) | Invalidation::Everything => {
                    self.kernel.invalidate_pages(node)
                }
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
            self.front.nodes.dropped(node, true);
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
mod tests;
