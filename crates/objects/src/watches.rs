//! The watches: the directories, the changes that each watch keeps, and which watches a change
//! concerns.

use crate::path::name_of;
use crate::{Change, OpenId, StoreError};
use client::Invalidation;
use ident::FileId;
use namespace::Link;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::oneshot;

/// FILE_NOTIFY_CHANGE_FILE_NAME, and the other bits of CompletionFilter.
const FILE_NAME: u32 = 0x1;
const DIR_NAME: u32 = 0x2;
pub(crate) const ATTRIBUTES: u32 = 0x4 | 0x10 | 0x20 | 0x40;
/// The attributes and the time of making, which Windows takes for changed with a file's name.
const WITH_NAME: u32 = 0x4 | 0x40;
pub(crate) const SIZE: u32 = 0x8;
pub(crate) const WRITTEN: u32 = 0x8 | 0x10;
pub(crate) const EA: u32 = 0x80;
pub(crate) const SECURITY: u32 = 0x100;
pub(crate) const STREAM_NAME: u32 = 0x200;
pub(crate) const STREAM_WRITTEN: u32 = 0x400 | 0x800;

/// FILE_ACTION_ADDED and others.
pub(crate) const ADDED: u32 = 1;
pub(crate) const REMOVED: u32 = 2;
pub(crate) const MODIFIED: u32 = 3;
const OLD_NAME: u32 = 4;
const NEW_NAME: u32 = 5;

/// Changes that a watch keeps, at most. A client with more of them lists the directory.
const CHANGES_MAX: usize = 1024;

/// All watches. Without any, a change costs one look at a number.
#[derive(Default)]
pub(crate) struct Watches {
    count: AtomicUsize,
    all: Mutex<Vec<Arc<Watched>>>,
}

/// A watch: what it is of, and the changes that it keeps.
pub(crate) struct Watched {
    pub(crate) open: OpenId,
    pub(crate) dir: FileId,
    pub(crate) filter: u32,
    pub(crate) subtree: bool,
    /// The machine holds the names of the directory, so changes elsewhere are heard of.
    pub(crate) is_armed: AtomicBool,
    pub(crate) state: Mutex<WatchState>,
}

/// The answer to a request of a watch: changes, or none if the directory has to be listed.
pub(crate) type Heard = Result<Vec<Change>, StoreError>;

#[derive(Default)]
pub(crate) struct WatchState {
    changes: Vec<Change>,
    is_lost: bool,
    ended: Option<StoreError>,
    /// The requests that wait, in the order of their arrival.
    pub(crate) waiting: VecDeque<oneshot::Sender<Heard>>,
}

impl WatchState {
    /// Takes the answer that there is.
    fn answer(&mut self) -> Option<Heard> {
        if std::mem::take(&mut self.is_lost) {
            self.changes.clear();
            return Some(Ok(Vec::new()));
        }
        if self.changes.is_empty() {
            return self.ended.map(Err);
        }
        Some(Ok(std::mem::take(&mut self.changes)))
    }

    fn take_back(&mut self, mut changes: Vec<Change>) {
        self.is_lost |= changes.is_empty();
        changes.append(&mut self.changes);
        self.changes = changes;
    }
}

impl Watched {
    /// The path of a place below the directory, if the watch is for it.
    fn sees(&self, (above, path): (&[FileId], &[String])) -> Option<String> {
        let at = above.iter().position(|dir| *dir == self.dir)?;
        let is_its = (self.subtree || at + 1 == above.len()) && at < path.len();
        is_its.then(|| path[at..].join("\\"))
    }

    /// Keeps changes that belong together.
    fn tell(&self, changes: impl IntoIterator<Item = Change>) {
        let mut state = self.state.lock();
        for change in changes {
            if state.changes.len() >= CHANGES_MAX {
                state.is_lost = true;
            } else {
                state.changes.push(change);
            }
        }
        self.answer(&mut state);
    }

    /// Answers the request that waits for longest, if there is an answer. Each change that comes
    /// while several wait is for one of them alone.
    pub(crate) fn answer(&self, state: &mut WatchState) {
        while !state.waiting.is_empty() {
            let Some(answer) = state.answer() else { return };
            let Some(waiting) = state.waiting.pop_front() else { return };
            // A request that was cancelled meanwhile leaves the answer to the next.
            if let Err(Ok(changes)) = waiting.send(answer) {
                state.take_back(changes);
            }
        }
    }

    /// Takes an answer back that nobody has read. The next request gets it.
    pub(crate) fn give_back(&self, changes: Vec<Change>) {
        let mut state = self.state.lock();
        state.take_back(changes);
        self.answer(&mut state);
    }

    fn end(&self, error: StoreError) {
        let mut state = self.state.lock();
        state.ended = Some(error);
        self.answer(&mut state);
    }
}

impl Watches {
    /// Whether nobody watches anything.
    pub(crate) fn is_idle(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Keeps changes for a new watch from here on.
    pub(crate) fn add(&self, watched: &Arc<Watched>) {
        let mut all = self.all.lock();
        all.push(Arc::clone(watched));
        self.count.store(all.len(), Ordering::Relaxed);
    }

    /// Forgets a watch that was dropped.
    pub(crate) fn remove(&self, dropped: &Arc<Watched>) {
        let mut all = self.all.lock();
        all.retain(|watched| !Arc::ptr_eq(watched, dropped));
        self.count.store(all.len(), Ordering::Relaxed);
    }

    /// Tells those who watch. `above` are the directories from the share's root, and `path` the
    /// names below it, one for each of them.
    pub(crate) fn report(&self, place: (&[FileId], &[String]), action: u32, filter: u32) {
        for watched in self.all.lock().iter().filter(|watched| watched.filter & filter != 0) {
            watched.tell(watched.sees(place).map(|path| Change { action, path }));
        }
    }

    /// A file or directory has gone from its `old` place to its `new` one, both as in
    /// [`Watches::report`] (MS-FSA §2.1.5.15.11). Within a directory it has two names, and
    /// otherwise it is removed and added. A watch that is not for names hears of a file, if it is
    /// for what comes with a new name.
    pub(crate) fn renamed(
        &self,
        old: (&[FileId], &[String]),
        new: (&[FileId], &[String]),
        is_directory: bool,
    ) {
        let (first, second) =
            if old.0.last() == new.0.last() { (OLD_NAME, NEW_NAME) } else { (REMOVED, ADDED) };
        for watched in self.all.lock().iter() {
            let change = |action, place| watched.sees(place).map(|path| Change { action, path });
            if watched.filter & name_filter(is_directory) != 0 {
                watched.tell(change(first, old).into_iter().chain(change(second, new)));
            } else if watched.filter & WITH_NAME != 0 && !is_directory {
                watched.tell(change(MODIFIED, new));
            }
        }
    }

    /// A name in a directory has changed by a call of another front door.
    pub(crate) fn beside(&self, link: &Link, action: u32) {
        if self.is_idle() {
            return;
        }
        if let Some(name) = name_of(&link.label, false) {
            self.report((std::slice::from_ref(&link.dir), &[name]), action, FILE_NAME | DIR_NAME);
        }
    }

    /// The directory is about to go.
    pub(crate) fn deleting(&self, dir: &FileId) {
        let is_it = |watched: &&Arc<Watched>| watched.dir == *dir;
        self.all.lock().iter().filter(is_it).for_each(|watched| watched.end(StoreError::DeletePending));
    }

    /// The open is closed.
    pub(crate) fn closed(&self, open: OpenId) {
        if !self.is_idle() {
            let is_its = |watched: &&Arc<Watched>| watched.open == open;
            self.all.lock().iter().filter(is_its).for_each(|watched| watched.end(StoreError::Closed));
        }
    }

    /// Another machine changes names, and does not say how.
    pub(crate) fn elsewhere(&self, what: &[Invalidation]) {
        if self.is_idle() {
            return;
        }
        for watched in self.all.lock().iter() {
            let concerns = what.iter().any(|what| match what {
                Invalidation::Entry(dir, _) | Invalidation::Entries(dir) => *dir == watched.dir,
                Invalidation::Everything => true,
                _ => false,
            });
            if concerns {
                watched.is_armed.store(false, Ordering::Relaxed);
                let mut state = watched.state.lock();
                state.is_lost = true;
                watched.answer(&mut state);
            }
        }
    }
}

/// The bit of CompletionFilter for a change of a name.
pub(crate) fn name_filter(is_directory: bool) -> u32 {
    if is_directory { DIR_NAME } else { FILE_NAME }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: u32 = FILE_NAME | DIR_NAME;

    fn dir(number: u64) -> FileId {
        FileId::root().child(number)
    }

    fn watch(watches: &Watches, of: FileId, filter: u32, subtree: bool) -> Arc<Watched> {
        let (is_armed, state) = (AtomicBool::new(true), Mutex::default());
        let watched = Arc::new(Watched { open: OpenId(1), dir: of, filter, subtree, is_armed, state });
        watches.add(&watched);
        watched
    }

    fn ask(watched: &Watched) -> oneshot::Receiver<Heard> {
        let (tell, told) = oneshot::channel();
        let mut state = watched.state.lock();
        state.waiting.push_back(tell);
        watched.answer(&mut state);
        told
    }

    fn heard(told: &mut oneshot::Receiver<Heard>) -> Vec<(u32, String)> {
        let changes = told.try_recv().expect("there is an answer").expect("the watch goes on");
        changes.into_iter().map(|change| (change.action, change.path)).collect()
    }

    fn path(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Below directory 1 are files, and directory 2 with more of them.
    const TOP: u64 = 1;
    const BELOW: u64 = 2;

    #[test]
    fn a_rename_is_of_names_within_a_directory_and_of_two_files_between_directories() {
        let watches = Watches::default();
        let whole = watch(&watches, dir(TOP), NAMES, true);
        let alone = watch(&watches, dir(TOP), NAMES, false);
        let below = watch(&watches, dir(BELOW), NAMES, false);
        let (top, deep) = ([dir(TOP)], [dir(TOP), dir(BELOW)]);
        watches.renamed((&deep, &path(&["d", "a"])), (&deep, &path(&["d", "b"])), false);
        watches.renamed((&deep, &path(&["d", "b"])), (&top, &path(&["c"])), false);
        let change = |action, path: &str| (action, path.to_owned());
        assert_eq!(
            heard(&mut ask(&whole)),
            [change(OLD_NAME, "d\\a"), change(NEW_NAME, "d\\b"), change(REMOVED, "d\\b"), change(ADDED, "c")]
        );
        assert_eq!(heard(&mut ask(&alone)), [change(ADDED, "c")]);
        assert_eq!(
            heard(&mut ask(&below)),
            [change(OLD_NAME, "a"), change(NEW_NAME, "b"), change(REMOVED, "b")]
        );
    }

    #[test]
    fn a_watch_that_is_not_for_names_hears_that_a_renamed_file_is_modified() {
        let watches = Watches::default();
        let watched = watch(&watches, dir(TOP), ATTRIBUTES, true);
        let (old, new) = (path(&["a"]), path(&["b"]));
        watches.renamed((&[dir(TOP)], &old), (&[dir(TOP)], &new), true);
        assert!(ask(&watched).try_recv().is_err(), "directories change nothing else");
        watched.state.lock().waiting.clear();
        watches.renamed((&[dir(TOP)], &old), (&[dir(TOP)], &new), false);
        assert_eq!(heard(&mut ask(&watched)), [(MODIFIED, "b".to_owned())]);
    }

    #[test]
    fn a_change_answers_one_request_and_one_that_is_cancelled_takes_none() {
        let watches = Watches::default();
        let watched = watch(&watches, dir(TOP), NAMES, true);
        let (cancelled, mut first, mut second) = (ask(&watched), ask(&watched), ask(&watched));
        drop(cancelled);
        watches.report((&[dir(TOP)], &path(&["a"])), ADDED, FILE_NAME);
        assert_eq!(heard(&mut first), [(ADDED, "a".to_owned())]);
        assert!(second.try_recv().is_err());
        watches.report((&[dir(TOP)], &path(&["b"])), ADDED, FILE_NAME);
        assert_eq!(heard(&mut second), [(ADDED, "b".to_owned())]);
        let (mut one, mut other) = (ask(&watched), ask(&watched));
        watches.deleting(&dir(TOP));
        for told in [&mut one, &mut other] {
            assert_eq!(told.try_recv().unwrap(), Err(StoreError::DeletePending));
        }
    }
}
