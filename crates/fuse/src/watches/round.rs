//! The thread that looks at watched files and tells of changes. It makes no system call on the
//! mount itself: see [`event_raiser`](super::event_raiser).

use bytes::Bytes;
use client::call;
use file_service::{FileCall, Listing, Observed};
use ident::FileId;
use lease::Label;
use namespace::{Cred, Error, FileKind};
use rustc_hash::FxHashSet;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::compare::{FileEvent, NameList};
use super::event_raiser::{EventRaiser, RaiseOrder};
use super::phantoms::Phantom;
use super::{WatchTarget, inotify, seen};
use crate::front::Front;
use crate::mountpoint;
use crate::notices::Notices;

/// The pause between two searches of /proc while something is watched. Each pause is at least
/// `SCAN_SHARE` times as long as the search took.
const SCAN_WATCHED: Duration = Duration::from_secs(1);
/// The same while nothing is watched.
const SCAN_IDLE: Duration = Duration::from_secs(2);
const SCAN_SHARE: u32 = 100;

/// The most directories and files that are watched. Those beyond are not.
const TARGETS_MAX: usize = 16 << 10;
/// A directory with more names is not watched, since each look would hold as many.
const NAMES_MAX: usize = 64 << 10;
/// The most files of one directory whose content and attributes are leased, so that changes are
/// noticed.
const LEASED_MAX: usize = 4 << 10;
/// The most names of one page of a listing.
const PAGE: usize = 1024;
/// The most directories above one another.
const DEPTH_MAX: usize = 4096;

/// How long a look waits for one answer, and how often it checks meanwhile whether the mount has
/// ended.
const ANSWER: Duration = Duration::from_secs(30);
const OVER: Duration = Duration::from_millis(100);

/// How long the event raiser is kept when there is nothing to tell.
const IDLE: Duration = Duration::from_secs(10);

/// The state of the thread.
pub(crate) struct Round {
    pub(crate) front: Arc<Front>,
    pub(crate) notices: Arc<Notices>,
    /// The command that starts the event raiser.
    pub(crate) program: Vec<OsString>,
    pub(crate) dir: PathBuf,
    /// The minor number of the mount's device.
    pub(crate) device: u32,
}

/// The place of an event.
struct WatchedPlace {
    dir: FileId,
    path: Vec<u8>,
    /// The watched file and its name, if it is a file.
    only: Option<(FileId, Label)>,
}

impl Round {
    /// Runs until [`Watches::close`](super::Watches::close).
    pub(crate) fn run(self) {
        let watches = Arc::clone(&self.front.watches);
        let (mut scan_at, mut hand, mut used) = (Instant::now(), None, Instant::now());
        while let Some(due) = watches.wait(scan_at) {
            let now = Instant::now();
            if now >= scan_at {
                let nodes = inotify::watched(self.device);
                let pause = if nodes.is_empty() { SCAN_IDLE } else { SCAN_WATCHED };
                self.adopt(&nodes);
                scan_at = now + pause.max(now.elapsed() * SCAN_SHARE);
            }
            for (of, directory) in due {
                if watches.state.lock().closed {
                    break;
                }
                let events = self.look(&of, directory);
                if !events.is_empty() {
                    self.tell(&mut hand, &of, directory, events);
                    used = Instant::now();
                }
            }
            if used.elapsed() > IDLE {
                self.drop_hand(&mut hand);
            }
        }
        self.drop_hand(&mut hand);
        watches.state.lock().is_over = true;
        watches.changed.notify_all();
    }

    fn drop_hand(&self, hand: &mut Option<EventRaiser>) {
        // This comes before another process can get its number.
        self.front.watches.hand.store(0, SeqCst);
        *hand = None;
    }

    /// Watches these nodes, and no others.
    fn adopt(&self, nodes: &FxHashSet<u64>) {
        let found: Vec<(FileId, bool)> = nodes
            .iter()
            .filter_map(|node| {
                Some((self.front.nodes.file(*node).ok()?, self.front.nodes.is_directory(*node)))
            })
            .take(TARGETS_MAX)
            .collect();
        let watches = &self.front.watches;
        let mut state = watches.state.lock();
        if state.closed {
            return;
        }
        let watched: FxHashSet<&FileId> = found.iter().map(|(file, _)| file).collect();
        let gone: Vec<FileId> =
            state.targets.keys().filter(|file| !watched.contains(file)).cloned().collect();
        for file in gone {
            state.show(&file, FxHashSet::default());
            state.targets.remove(&file);
        }
        let now = Instant::now();
        for (file, directory) in found {
            state.targets.entry(file).or_insert_with(|| WatchTarget::new(directory, now));
        }
        watches.any.store(!state.targets.is_empty(), SeqCst);
    }

    /// Looks at a target. Returns the changes by other machines.
    fn look(&self, of: &FileId, directory: bool) -> Vec<FileEvent> {
        let watches = &self.front.watches;
        {
            let mut state = watches.state.lock();
            state.recalled = Some(FxHashSet::default());
            let Some(target) = state.targets.get_mut(of) else { return Vec::new() };
            target.due = None;
            target.snapshot.begin_look();
        }
        let names = if directory { self.list(of) } else { self.file(of) };
        let mut state = watches.state.lock();
        match names {
            Some(names) => state.seen(of, names),
            None => {
                state.recalled = None;
                if let Some(target) = state.targets.get_mut(of) {
                    target.snapshot.end_look();
                    target.rests = Instant::now() + super::PAUSE_MAX;
                    target.look_by(Instant::now());
                }
                Vec::new()
            }
        }
    }

    /// The names of a directory; nothing if they cannot be had. A directory that is gone has none.
    fn list(&self, dir: &FileId) -> Option<NameList> {
        let (mut names, mut leased, mut after, mut upto) = (NameList::new(), 0, 0, None);
        loop {
            let call = call::List { dir: dir.clone(), after, upto, limit: PAGE, stat: true };
            let (entries, end) = match self.ask(call)? {
                Ok(Listing { entries, upto: to, end }) => {
                    upto = Some(to);
                    (entries, end)
                }
                Err(Error::Stale) => return Some(NameList::new()),
                Err(_) => return None,
            };
            let end = end || entries.is_empty();
            for listed in entries {
                after = after.max(listed.entry.position);
                let (mut stat, mut uncached) = (listed.stat, listed.uncached);
                if stat.is_none() && listed.entry.kind != FileKind::Directory && leased < LEASED_MAX {
                    let told = self.ask(call::Stat { file: listed.entry.file.clone() })?.ok();
                    uncached = told.is_some_and(|told| told.uncached);
                    stat = told.map(|told| told.value);
                }
                leased += 1;
                names.insert(listed.label, seen(&listed.entry, stat.as_ref(), uncached));
            }
            if end {
                return Some(names);
            }
            if names.len() > NAMES_MAX {
                tracing::debug!(%dir, "too large to be watched for what other machines do");
                return Some(NameList::new());
            }
        }
    }

    /// A watched file, under its first name.
    fn file(&self, file: &FileId) -> Option<NameList> {
        let Ok(links) = self.ask(call::Links { file: file.clone() })? else {
            return Some(NameList::new());
        };
        let told = self.ask(call::Stat { file: file.clone() })?;
        let (Ok(Observed { value: stat, uncached }), Some(link)) = (told, links.first()) else {
            return Some(NameList::new());
        };
        let looks = Some(super::Looks::of(&stat));
        let seen = super::Seen { file: Some(file.clone()), kind: stat.attributes.kind, looks, uncached };
        Some(NameList::from([(link.label.clone(), seen)]))
    }

    /// The client's answer; nothing if it takes too long, or the mount has ended.
    fn ask<C: FileCall>(&self, call: C) -> Option<Result<C::Reply, Error>> {
        let (tell, told) = channel();
        let service = self.front.file_service();
        let ticket = service.ask(&Cred::default(), call, move |answer| _ = tell.send(answer));
        let deadline = Instant::now() + ANSWER;
        loop {
            match told.recv_timeout(OVER) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Timeout)
                    if Instant::now() < deadline && !self.front.watches.state.lock().closed => {}
                Err(_) => {
                    ticket.into_iter().for_each(|ticket| service.cancel(ticket));
                    return None;
                }
            }
        }
    }

    /// The place of `of`: its own directory's path, or that of the directory it is in.
    fn place(&self, of: &FileId, directory: bool) -> Option<WatchedPlace> {
        let root = self.front.file_service().root();
        let above = |file: &FileId| self.ask(call::Links { file: file.clone() })?.ok()?.into_iter().next();
        let (dir, only) = match directory {
            true => (of.clone(), None),
            false => above(of).map(|link| (link.dir, Some((of.clone(), link.label))))?,
        };
        let (mut labels, mut at) = (Vec::new(), dir.clone());
        while at != root {
            let link = above(&at).filter(|_| labels.len() < DEPTH_MAX)?;
            labels.push(link.label);
            at = link.dir;
        }
        labels.reverse();
        let path = labels.iter().map(Label::as_bytes).collect::<Vec<_>>().join(&b'/');
        Some(WatchedPlace { dir, path, only })
    }

    fn tell(&self, hand: &mut Option<EventRaiser>, of: &FileId, directory: bool, events: Vec<FileEvent>) {
        let Some(place) = self.place(of, directory) else { return };
        // For a watched file only its content and attributes are told. Changes of its names are its
        // directories' events.
        let is_told = |event: &FileEvent| match (&place.only, event) {
            (None, _) => true,
            (Some((_, name)), FileEvent::Modified { name: of } | FileEvent::Changed { name: of }) => {
                of == name
            }
            _ => false,
        };
        let mut events = events.iter().filter(|event| is_told(event)).peekable();
        // A process that has died is started once more.
        for _ in 0..2 {
            if events.peek().is_none() {
                return;
            }
            match self.tell_by(hand, &place, &mut events) {
                Ok(()) => return,
                Err(error) => {
                    tracing::debug!(%error, "the process that tells watchers is of no more use");
                    self.drop_hand(hand);
                }
            }
        }
    }

    fn tell_by<'a>(
        &self,
        hand: &mut Option<EventRaiser>,
        place: &WatchedPlace,
        events: &mut impl Iterator<Item = &'a FileEvent>,
    ) -> io::Result<()> {
        let hand = match hand {
            Some(hand) => hand,
            none => {
                let started = EventRaiser::start(&self.program, &self.dir)?;
                self.front.watches.hand.store(started.pid(), SeqCst);
                none.insert(started)
            }
        };
        let open = RaiseOrder::Open { path: place.path.clone(), device: self.device };
        if let Err(errno) = hand.carry_out(&open)? {
            tracing::debug!(errno, dir = %place.dir, "watchers of a directory that cannot be reached are told nothing");
            return Ok(());
        }
        for event in events {
            if self.front.watches.state.lock().closed {
                break;
            }
            self.raise(hand, place, event)?;
        }
        hand.carry_out(&RaiseOrder::Close)?.ok();
        Ok(())
    }

    /// Tells of one event. If it is refused, a change of attributes is told instead, which makes a
    /// watcher look.
    fn raise(&self, hand: &mut EventRaiser, place: &WatchedPlace, event: &FileEvent) -> io::Result<()> {
        let dir = || place.dir.clone();
        let bytes = |name: &Label| Bytes::copy_from_slice(name.as_bytes());
        let vec = |name: &Label| name.as_bytes().to_vec();
        let (names, phantom, order) = match event {
            FileEvent::Made { name, directory } => (
                vec![name],
                Phantom::Made { dir: dir(), name: bytes(name) },
                RaiseOrder::Make { name: vec(name), directory: *directory },
            ),
            FileEvent::Removed { name, directory } => (
                vec![name],
                Phantom::Removed { dir: dir(), name: bytes(name), directory: *directory },
                RaiseOrder::Remove { name: vec(name), directory: *directory },
            ),
            FileEvent::Renamed { from, to, directory } => (
                vec![from, to],
                Phantom::Renamed { dir: dir(), from: bytes(from), to: bytes(to), directory: *directory },
                RaiseOrder::Rename { from: vec(from), to: vec(to) },
            ),
            FileEvent::Replaced { name } => (
                vec![name],
                Phantom::Replaced { root: self.front.file_service().root(), dir: dir(), name: bytes(name) },
                RaiseOrder::Replace { name: vec(name) },
            ),
            FileEvent::Modified { name } | FileEvent::Changed { name } => {
                let both = matches!(event, FileEvent::Changed { .. });
                return self.touch(hand, place, name, both);
            }
        };
        let moves = match event {
            FileEvent::Made { name, directory: true }
            | FileEvent::Renamed { to: name, directory: true, .. } => Some(name),
            _ => None,
        };
        // A mount within a directory would not survive that the directory's name is a phantom's.
        if let Some(name) = moves.filter(|name| self.may_lose_mounts(place, name)) {
            return self.touch(hand, place, name, true);
        }
        if self.asks(hand, place, &names, phantom, &order)?.is_err() {
            for name in names {
                self.mark(hand, place, name, true)?;
            }
        }
        Ok(())
    }

    /// Tells that content or attributes of `name` have changed. The event is the file's own if the
    /// mounting user may set its times. Otherwise it is a phantom's, and the directory's watchers
    /// hear of it.
    fn touch(
        &self,
        hand: &mut EventRaiser,
        place: &WatchedPlace,
        name: &Label,
        both: bool,
    ) -> io::Result<()> {
        let file = match &place.only {
            Some((file, _)) => Some(file.clone()),
            None => self.front.watches.file_of(&place.dir, name),
        };
        let Some(file) = file else { return Ok(()) };
        let order = RaiseOrder::Touch { name: name.as_bytes().to_vec(), both };
        match self.with(Phantom::Touched { file }, None, || hand.carry_out(&order))? {
            // The file is gone, which is an event of its own.
            Ok(()) | Err(libc::ENOENT) => Ok(()),
            Err(_) => self.mark(hand, place, name, both),
        }
    }

    fn mark(&self, hand: &mut EventRaiser, place: &WatchedPlace, name: &Label, both: bool) -> io::Result<()> {
        if self.may_lose_mounts(place, name) {
            return Ok(());
        }
        let phantom =
            Phantom::Marked { dir: place.dir.clone(), name: Bytes::copy_from_slice(name.as_bytes()) };
        let order = RaiseOrder::Touch { name: name.as_bytes().to_vec(), both };
        self.asks(hand, place, &[name], phantom, &order).map(drop)
    }

    /// Has the kernel make the requests for an event. It must look the names up as well, so their
    /// entries are expired first.
    fn asks(
        &self,
        hand: &mut EventRaiser,
        place: &WatchedPlace,
        names: &[&Label],
        phantom: Phantom,
        order: &RaiseOrder,
    ) -> io::Result<Result<(), i32>> {
        names.iter().for_each(|name| self.notices.expire_name(&place.dir, name));
        let names = names.iter().map(|name| (*name).clone()).collect();
        self.with(phantom, Some((place.dir.clone(), names)), || hand.carry_out(order))
    }

    fn with<T>(
        &self,
        phantom: Phantom,
        untouched: Option<(FileId, Vec<Label>)>,
        act: impl FnOnce() -> T,
    ) -> T {
        self.front.watches.register(Some(phantom), untouched);
        let done = act();
        self.front.watches.register(None, None);
        done
    }

    /// Whether the kernel has a directory of this name, in which something may be mounted.
    fn may_lose_mounts(&self, place: &WatchedPlace, name: &Label) -> bool {
        let file = self.front.watches.file_of(&place.dir, name);
        let nodes = file.map(|file| self.front.nodes.of(&file)).unwrap_or_default();
        nodes.iter().any(|node| self.front.nodes.is_directory(*node))
            && mountpoint::has_mounts_within(&self.dir)
    }
}
