//! The watches: the directories, the changes that each watch keeps, and which watches a change
//! concerns.

use crate::path::name_of;
use crate::{Change, OpenId, StoreError};
use client::Invalidation;
use ident::FileId;
use namespace::Link;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::sync::Notify;

/// FILE_NOTIFY_CHANGE_FILE_NAME, and the other bits of CompletionFilter.
const FILE_NAME: u32 = 0x1;
const DIR_NAME: u32 = 0x2;
pub(crate) const ATTRIBUTES: u32 = 0x4 | 0x10 | 0x20 | 0x40;
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
    pub(crate) changed: Notify,
}

#[derive(Default)]
pub(crate) struct WatchState {
    pub(crate) changes: Vec<Change>,
    pub(crate) is_lost: bool,
    pub(crate) ended: Option<StoreError>,
}

impl Watched {
    fn tell(&self, change: Change) {
        let mut state = self.state.lock();
        if state.changes.len() >= CHANGES_MAX {
            state.is_lost = true;
        } else {
            state.changes.push(change);
        }
        drop(state);
        self.changed.notify_one();
    }

    fn end(&self, error: StoreError) {
        self.state.lock().ended = Some(error);
        self.changed.notify_one();
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
    pub(crate) fn report(&self, (above, path): (&[FileId], &[String]), action: u32, filter: u32) {
        for watched in self.all.lock().iter().filter(|watched| watched.filter & filter != 0) {
            let Some(at) = above.iter().position(|dir| *dir == watched.dir) else { continue };
            if (watched.subtree || at + 1 == above.len()) && at < path.len() {
                watched.tell(Change { action, path: path[at..].join("\\") });
            }
        }
    }

    /// A file got the name `to` in place of `from`. `above` and `path` are of its new place, as in
    /// [`Watches::report`], and `old` is the path before.
    pub(crate) fn renamed(
        &self,
        (above, path): (&[FileId], &[String]),
        (from, to): (&Link, &Link),
        old: &[String],
        filter: u32,
    ) {
        // The old place is known as far as it is the new one's: its directory, and its name.
        let same = from.dir == to.dir;
        for watched in self.all.lock().iter().filter(|watched| watched.filter & filter != 0) {
            let new = above.iter().position(|dir| *dir == watched.dir);
            let was_there = watched.dir == from.dir || watched.subtree && new.is_some();
            let new = new.filter(|at| (watched.subtree || at + 1 == above.len()) && *at < path.len());
            let (first, second) =
                if same || was_there && new.is_some() { (OLD_NAME, NEW_NAME) } else { (REMOVED, ADDED) };
            if was_there {
                let at = new.unwrap_or(old.len().saturating_sub(1)).min(old.len().saturating_sub(1));
                watched.tell(Change { action: first, path: old[at..].join("\\") });
            }
            if let Some(at) = new {
                watched.tell(Change { action: second, path: path[at..].join("\\") });
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
                watched.state.lock().is_lost = true;
                watched.changed.notify_one();
            }
        }
    }
}

/// The bit of CompletionFilter for a change of a name.
pub(crate) fn name_filter(is_directory: bool) -> u32 {
    if is_directory { DIR_NAME } else { FILE_NAME }
}
