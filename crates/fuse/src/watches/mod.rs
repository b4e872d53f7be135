//! Tells programs here that watch files (inotify) of changes by other machines.
//!
//! FUSE has no notice that tells watchers anything. So [`round`] finds out what is watched
//! ([`inotify`]), and what other machines have changed there ([`compare`]). Then it has another
//! process ask the kernel for just that ([`event_raiser`]). The request is answered as if it were
//! done ([`phantoms`]), and the kernel tells watchers as of any program's change.
//!
//! While nothing is watched all of this costs a request two loads.

mod compare;
pub(crate) mod event_raiser;
mod inotify;
mod phantoms;
pub(crate) mod round;

pub(crate) use phantoms::{Ghost, PhantomAnswer};

use client::{Invalidation, call};
use file_service::{CacheHolder, FileService, Observed, Revocation, Seal};
use ident::FileId;
use lease::Label;
use namespace::{Cred, Entry, FileKind, Stat};
use parking_lot::{Condvar, Mutex};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::transport::call::Call;
use compare::{CallDone, FileEvent, Looks, NameList, Seen, Snapshot};
use phantoms::Phantoms;

/// The time from a recall to the look, so that fields which are recalled together are looked at
/// together.
const SOON: Duration = Duration::from_millis(50);

/// The shortest pause between two looks at a target. The pause doubles while each look finds
/// something new.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// The longest pause between two looks at a target.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The pause between looks at names that no lease covers.
const UNCACHED_EVERY: Duration = Duration::from_secs(1);

/// Operations of this machine after which a look clears away what is remembered of files that are
/// gone.
const ENDED_MAX: u32 = 4096;

/// How long the end of the mount waits for a round that is under way.
const END: Duration = Duration::from_secs(2);

/// The watched directories and files of one mount.
pub(crate) struct Watches {
    service: Arc<dyn FileService>,
    /// Whether anything is watched.
    any: AtomicBool,
    /// The number of the event raiser's process; 0 if there is none.
    hand: AtomicU32,
    state: Mutex<WatchState>,
    changed: Condvar,
}

#[derive(Default)]
struct WatchState {
    /// Watched directories and files.
    targets: FxHashMap<FileId, WatchTarget>,
    /// The targets that show a file.
    shown_by: FxHashMap<FileId, SmallVec<[FileId; 1]>>,
    /// Files that were recalled since a look began, while one is under way.
    recalled: Option<FxHashSet<FileId>>,
    phantoms: Phantoms,
    /// The names that the phantom concerns, in this directory.
    names: Option<(FileId, Vec<Label>)>,
    closed: bool,
    /// The thread has ended, or was never started.
    is_over: bool,
}

/// A watched directory or file.
struct WatchTarget {
    directory: bool,
    snapshot: Snapshot,
    /// The files that it shows.
    files: FxHashSet<FileId>,
    /// Operations of this machine since the last look.
    ended: u32,
    /// When the next look is due.
    due: Option<Instant>,
    /// The earliest time of the next look.
    rests: Instant,
    pause: Duration,
}

impl WatchTarget {
    fn new(directory: bool, now: Instant) -> WatchTarget {
        let (snapshot, files) = (Snapshot::new(), FxHashSet::default());
        WatchTarget { directory, snapshot, files, ended: 0, due: Some(now), rests: now, pause: PAUSE_MIN }
    }

    fn look_by(&mut self, at: Instant) {
        let at = at.max(self.rests);
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}

impl Watches {
    /// Watches on the file system behind `service`. Nothing is watched before a
    /// [`Round`](round::Round) begins.
    pub(crate) fn new(service: Arc<dyn FileService>) -> Arc<Watches> {
        let state = Mutex::new(WatchState { is_over: true, ..WatchState::default() });
        let (any, hand) = (AtomicBool::default(), AtomicU32::default());
        Arc::new(Watches { service, any, hand, state, changed: Condvar::new() })
    }

    /// A [`Round`](round::Round) begins.
    pub(crate) fn begin(&self) {
        self.state.lock().is_over = false;
    }

    /// Ends all telling. It waits a bounded time for an event under way, which keeps the mount in
    /// use.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.any.store(false, SeqCst);
        self.changed.notify_all();
        let deadline = Instant::now() + END;
        while !state.is_over && !self.changed.wait_until(&mut state, deadline).timed_out() {}
    }

    /// Whether this thread is the event raiser's.
    pub(crate) fn is_hand(&self, pid: u32) -> bool {
        let hand = self.hand.load(SeqCst);
        hand != 0 && hand == pid
    }

    /// The answer to the event raiser, if it differs from that to any program.
    pub(crate) fn phantom(&self, node: u64, file: Option<&FileId>, call: &Call) -> Option<PhantomAnswer> {
        let mut state = self.state.lock();
        let answer = state.phantoms.answer(node, file, call)?;
        // By now the kernel keeps the directory locked. If one of these names was changed since the
        // look, the kernel itself has told watchers of it.
        let is_done = !matches!(call, Call::Lookup { .. }) && answer != PhantomAnswer::Refused;
        Some(if is_done && !state.is_as_expected() { PhantomAnswer::Refused } else { answer })
    }

    /// Sets how the event raiser is answered from now on.
    fn register(&self, phantom: Option<phantoms::Phantom>, names: Option<(FileId, Vec<Label>)>) {
        let mut state = self.state.lock();
        state.phantoms.register(phantom);
        state.names = names;
    }

    /// The file that was last seen under this name.
    fn file_of(&self, dir: &FileId, name: &Label) -> Option<FileId> {
        self.state.lock().targets.get(dir)?.snapshot.seen(name)?.file.clone()
    }

    /// Waits until a look is due, or until `until`. Returns the targets, and whether they are
    /// directories; nothing when the mount has ended.
    fn wait(&self, until: Instant) -> Option<Vec<(FileId, bool)>> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            let now = Instant::now();
            let is_due = |target: &WatchTarget| target.due.is_some_and(|due| due <= now);
            let due = state.targets.iter().filter(|(_, target)| is_due(target));
            let due: Vec<(FileId, bool)> = due.map(|(of, target)| (of.clone(), target.directory)).collect();
            if !due.is_empty() || until <= now {
                return Some(due);
            }
            let next = state.targets.values().filter_map(|target| target.due).min();
            self.changed.wait_until(&mut state, next.map_or(until, |next| next.min(until)));
        }
    }

    /// An operation of this machine on these names begins. This comes before its first call to the
    /// client, so that a look takes its results for this machine's own.
    pub(crate) fn begins<const N: usize>(self: &Arc<Self>, names: [(&FileId, &Label); N]) -> Option<Noted> {
        if !self.any.load(SeqCst) {
            return None;
        }
        let mut state = self.state.lock();
        let mut noted = SmallVec::new();
        for (dir, name) in names {
            if let Some(target) = state.targets.get_mut(dir) {
                target.snapshot.begin(name);
                noted.push((dir.clone(), name.clone()));
            }
        }
        drop(state);
        (!noted.is_empty()).then(|| Noted { watches: Arc::clone(self), names: noted })
    }
}

impl WatchState {
    fn is_as_expected(&self) -> bool {
        let Some((dir, names)) = &self.names else { return true };
        let Some(target) = self.targets.get(dir) else { return false };
        !names.iter().any(|name| target.snapshot.is_touched(name))
    }

    /// The targets that may show the recalled fields: files by their attributes, directories by
    /// their names.
    fn concerned(&mut self, what: &Invalidation) -> SmallVec<[FileId; 1]> {
        match what {
            Invalidation::Entry(dir, _) | Invalidation::Entries(dir) => {
                self.targets.get(dir).map(|_| dir.clone()).into_iter().collect()
            }
            Invalidation::Attributes(file) | Invalidation::Pages(file) | Invalidation::Caching(file, _) => {
                if let Some(recalled) = &mut self.recalled {
                    recalled.insert(file.clone());
                }
                self.shown_by.get(file).cloned().unwrap_or_default()
            }
            Invalidation::Everything => self.targets.keys().cloned().collect(),
        }
    }

    /// Notes that other machines may change `what` from here on, so that it is looked at again.
    fn recall(&mut self, what: &Invalidation, looks: Option<Looks>) {
        let soon = Instant::now() + SOON;
        for of in self.concerned(what) {
            let Some(target) = self.targets.get_mut(&of) else { continue };
            match what {
                Invalidation::Attributes(file)
                | Invalidation::Pages(file)
                | Invalidation::Caching(file, _) => {
                    target.snapshot.doubt(file, looks);
                }
                Invalidation::Everything => target.snapshot.doubt_all(),
                Invalidation::Entry(..) | Invalidation::Entries(_) => {}
            }
            target.look_by(soon);
        }
    }

    /// A look at `of` has found `names`. Returns the events.
    fn seen(&mut self, of: &FileId, names: NameList) -> Vec<FileEvent> {
        let recalled = self.recalled.take().unwrap_or_default();
        let Some(target) = self.targets.get_mut(of) else { return Vec::new() };
        let files: FxHashSet<FileId> = names.values().filter_map(|seen| seen.file.clone()).collect();
        let uncached = names.values().any(|seen| seen.uncached);
        // Files that were recalled before this target was known to show them.
        let missed: Vec<FileId> = files.intersection(&recalled).cloned().collect();
        let now = Instant::now();
        let was_new = target.snapshot.is_new;
        let (events, again) = target.snapshot.compare(names);
        let doubled = (target.pause * 2).min(PAUSE_MAX);
        target.pause = if events.is_empty() { PAUSE_MIN } else { doubled };
        target.rests = now + if was_new { SOON } else { target.pause };
        if again || !missed.is_empty() {
            target.look_by(now);
        }
        if uncached {
            target.look_by(now + UNCACHED_EVERY);
        }
        missed.iter().for_each(|file| target.snapshot.doubt(file, None));
        self.show(of, files);
        events
    }

    /// Notes that `of` shows these files, and no others.
    fn show(&mut self, of: &FileId, files: FxHashSet<FileId>) {
        let Some(target) = self.targets.get_mut(of) else { return };
        target.ended = 0;
        let before = std::mem::replace(&mut target.files, files);
        for file in before.difference(&target.files) {
            if let Some(targets) = self.shown_by.get_mut(file) {
                targets.retain(|target| target != of);
                if targets.is_empty() {
                    self.shown_by.remove(file);
                }
            }
        }
        for file in target.files.difference(&before) {
            self.shown_by.entry(file.clone()).or_default().push(of.clone());
        }
    }

    /// An operation of this machine on a name of `of` has ended.
    fn end(&mut self, of: &FileId, name: &Label, done: CallDone) {
        let Some(target) = self.targets.get_mut(of) else { return };
        match &done {
            CallDone::Bound(Seen { file: Some(file), .. }) => {
                if target.files.insert(file.clone()) {
                    self.shown_by.entry(file.clone()).or_default().push(of.clone());
                }
            }
            // A look finds out which file it is now, before another machine changes it.
            CallDone::Bound(_) => target.look_by(Instant::now()),
            CallDone::Nothing | CallDone::Gone => {}
        }
        target.ended += 1;
        if target.ended == ENDED_MAX {
            target.look_by(Instant::now());
        }
        target.snapshot.end(name, done);
    }
}

impl CacheHolder for Watches {
    /// Watched items are not given away: their leases tell of changes.
    fn revoke(&self, what: &[Invalidation], offered: &[Invalidation]) -> Revocation<'_> {
        if self.any.load(SeqCst) {
            for what in what.iter().filter(|what| self.is_watched(what)) {
                // The leases are held until this returns. So the current state is the work of this
                // machine's programs.
                let looks = match what {
                    Invalidation::Attributes(file)
                    | Invalidation::Pages(file)
                    | Invalidation::Caching(file, _) => self.looks(file),
                    _ => None,
                };
                self.state.lock().recall(what, looks);
            }
            self.changed.notify_all();
        }
        let watched = offered.iter().filter(|what| self.is_watched(what));
        let kept = watched.filter_map(Invalidation::file).cloned().collect();
        Revocation { seal: Box::new(|| Box::new(|| ())), kept }
    }

    fn revoke_uncached(&self, what: &[Invalidation]) -> Option<Seal<'_>> {
        let is_watched = what.iter().any(|what| self.is_watched(what));
        (!is_watched).then(|| -> Seal<'_> { Box::new(|| Box::new(|| ())) })
    }

    fn revoke_soon(&self, what: Vec<Invalidation>) {
        if self.any.load(SeqCst) {
            let mut state = self.state.lock();
            what.iter().for_each(|what| state.recall(what, None));
            self.changed.notify_all();
        }
    }
}

impl Watches {
    /// Whether a directory is watched that `what` concerns.
    fn is_watched(&self, what: &Invalidation) -> bool {
        self.any.load(SeqCst) && !self.state.lock().concerned(what).is_empty()
    }

    /// The state of `file` under leases; nothing if that takes a request to the server.
    fn looks(&self, file: &FileId) -> Option<Looks> {
        let found: Arc<Mutex<Option<Looks>>> = Arc::default();
        let tells = Arc::clone(&found);
        let ticket = self.service.ask(&Cred::default(), call::Stat { file: file.clone() }, move |told| {
            if let Ok(Observed { value: stat, uncached: false }) = told {
                *tells.lock() = Some(Looks::of(&stat));
            }
        });
        if let Some(ticket) = ticket {
            self.service.cancel(ticket);
        }
        found.lock().take()
    }
}

/// An operation of this machine under way on watched names.
pub(crate) struct Noted {
    watches: Arc<Watches>,
    names: SmallVec<[(FileId, Label); 2]>,
}

impl Noted {
    /// The name is now this file's.
    pub(crate) fn bound(self, entry: &Entry, stat: &Stat) {
        let seen = seen(entry, Some(stat), false);
        self.end(|_, _| CallDone::Bound(seen.clone()));
    }

    /// The name is gone.
    pub(crate) fn gone(self) {
        self.end(|_, _| CallDone::Gone);
    }

    /// The first of two names has become the second; with `exchange` also the other way round.
    pub(crate) fn renamed(
        self,
        from: (&FileId, &Label),
        to: (&FileId, &Label),
        exchange: bool,
        whiteout: bool,
    ) {
        let somehow = |kind| Seen { file: None, kind, looks: None, uncached: false };
        self.end(|state, (dir, name)| {
            let of = |(dir, name): (&FileId, &Label)| {
                state.targets.get(dir).and_then(|target| target.snapshot.seen(name)).cloned()
            };
            let (was_from, was_to) = (of(from), of(to));
            let file = |seen: &Option<Seen>| seen.as_ref().and_then(|seen| seen.file.clone());
            // Two names of one file both stay.
            if file(&was_from).is_some() && file(&was_from) == file(&was_to) {
                return CallDone::Nothing;
            }
            let known =
                |seen: Option<Seen>| CallDone::Bound(seen.unwrap_or_else(|| somehow(FileKind::Regular)));
            match () {
                () if (dir, name) == to => known(was_from),
                () if exchange => known(was_to),
                () if whiteout => CallDone::Bound(somehow(FileKind::CharDevice)),
                () => CallDone::Gone,
            }
        });
    }

    fn end(mut self, done: impl Fn(&WatchState, (&FileId, &Label)) -> CallDone) {
        let names = std::mem::take(&mut self.names);
        let mut state = self.watches.state.lock();
        // All names are read as they were before.
        let done: SmallVec<[CallDone; 2]> =
            names.iter().map(|(dir, name)| done(&state, (dir, name))).collect();
        let looks = |done: &CallDone| matches!(done, CallDone::Bound(Seen { file: None, .. }));
        let is_due = done.iter().any(looks);
        for ((dir, name), done) in names.iter().zip(done) {
            state.end(dir, name, done);
        }
        if is_due {
            self.watches.changed.notify_all();
        }
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let mut state = self.watches.state.lock();
        for (dir, name) in &self.names {
            state.end(dir, name, CallDone::Nothing);
        }
    }
}

fn seen(entry: &Entry, stat: Option<&Stat>, uncached: bool) -> Seen {
    Seen { file: Some(entry.file.clone()), kind: entry.kind, looks: stat.map(Looks::of), uncached }
}
