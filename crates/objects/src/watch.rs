//! Watches: changes below a directory (MS-FSA §2.1.5.11, MS-SMB2 §3.3.5.19).

use crate::{Change, Open, OpenId, Store, StoreError, rights};
use client::{Invalidation, call};
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

const ADDED: u32 = 1;
const REMOVED: u32 = 2;
const MODIFIED: u32 = 3;
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

struct Watched {
    open: OpenId,
    dir: FileId,
    filter: u32,
    subtree: bool,
    /// The machine holds the names of the directory, so changes elsewhere are heard of.
    is_armed: AtomicBool,
    state: Mutex<WatchState>,
    changed: Notify,
}

#[derive(Default)]
struct WatchState {
    changes: Vec<Change>,
    is_lost: bool,
    ended: Option<StoreError>,
}

/// The changes below a directory since the watch began.
pub struct Watch {
    watched: Arc<Watched>,
    store: Arc<Store>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let watches = &self.store.watches;
        let mut all = watches.all.lock();
        all.retain(|watched| !Arc::ptr_eq(watched, &self.watched));
        watches.count.store(all.len(), Ordering::Relaxed);
    }
}

impl Watch {
    /// The next changes, as many as there are; waits until there is one. Nothing
    /// (STATUS_NOTIFY_ENUM_DIR) says that there were more than could be kept, or that something
    /// changed that cannot be named: the client lists the directory anew.
    /// [`StoreError::Closed`] (STATUS_NOTIFY_CLEANUP) says that the open is closed;
    /// [`StoreError::DeletePending`] that the directory is being deleted.
    pub async fn changes(&self) -> Result<Vec<Change>, StoreError> {
        loop {
            let changed = self.watched.changed.notified();
            {
                let mut state = self.watched.state.lock();
                if std::mem::take(&mut state.is_lost) {
                    state.changes.clear();
                    return Ok(Vec::new());
                }
                if !state.changes.is_empty() {
                    return Ok(std::mem::take(&mut state.changes));
                }
                if let Some(error) = state.ended {
                    return Err(error);
                }
            }
            if !self.watched.is_armed.swap(true, Ordering::Relaxed) {
                // The machine hears of other machines' changes to names that it holds.
                let dir = self.watched.dir.clone();
                let call = call::List { dir, after: 0, upto: None, limit: 1, stat: false };
                let _ = self.store.service.ask(&namespace::Cred::default(), call).await;
            }
            changed.await;
        }
    }
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

impl Open {
    /// Watches a directory, and with `subtree` all below it. Needs LIST_DIRECTORY. `filter` has the
    /// bits of CompletionFilter (MS-SMB2 §2.2.35). Changes are kept from here until the watch is
    /// dropped: the caller keeps one for each open.
    pub fn watch(&self, filter: u32, subtree: bool) -> Result<Watch, StoreError> {
        self.require(rights::READ_DATA)?;
        if !self.is_directory() {
            return Err(StoreError::Invalid);
        }
        let watched = Arc::new(Watched {
            open: self.id(),
            dir: self.file().clone(),
            filter,
            subtree,
            is_armed: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Notify::new(),
        });
        let watches = &self.store().watches;
        let mut all = watches.all.lock();
        all.push(Arc::clone(&watched));
        watches.count.store(all.len(), Ordering::Relaxed);
        Ok(Watch { watched, store: Arc::clone(self.store()) })
    }
}

impl Watches {
    fn is_idle(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Tells those who watch. `above` are the directories from the share's root, and `path` the
    /// names below it, one for each of them.
    fn report(&self, (above, path): (&[FileId], &[String]), action: u32, filter: u32) {
        for watched in self.all.lock().iter().filter(|watched| watched.filter & filter != 0) {
            let Some(at) = above.iter().position(|dir| *dir == watched.dir) else { continue };
            if (watched.subtree || at + 1 == above.len()) && at < path.len() {
                watched.tell(Change { action, path: path[at..].join("\\") });
            }
        }
    }

    fn report_open(&self, store: &Store, open: &Open, action: u32, filter: u32) {
        if self.is_idle() {
            return;
        }
        let place = store
            .with(|table, _| table.opens.get(&open.id()).map(|open| (open.above.clone(), open.path.clone())));
        if let Some((above, path)) = place {
            self.report((&above, &path), action, filter);
        }
    }

    /// A file was made.
    pub(crate) fn added(&self, store: &Store, open: &Open, is_directory: bool) {
        self.report_open(store, open, ADDED, name_filter(is_directory));
    }

    /// A file's name is gone.
    pub(crate) fn removed(&self, store: &Store, open: &Open, _link: &Link) {
        self.report_open(store, open, REMOVED, name_filter(open.is_directory()));
    }

    /// A file's content or attributes have changed.
    pub(crate) fn modified(&self, store: &Store, open: &Open, filter: u32) {
        self.report_open(store, open, MODIFIED, filter);
    }

    /// A file got another name in place of its old one, at the old path.
    pub(crate) fn renamed(&self, store: &Store, open: &Open, (from, to): (&Link, &Link), old: Vec<String>) {
        if self.is_idle() {
            return;
        }
        let filter = name_filter(open.is_directory());
        let place = store
            .with(|table, _| table.opens.get(&open.id()).map(|open| (open.above.clone(), open.path.clone())));
        let Some((above, path)) = place else { return };
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

    /// A file got another name.
    pub(crate) fn named(&self, store: &Store, open: &Open, to: &Link, path: Vec<String>) {
        if self.is_idle() {
            return;
        }
        let above = store.with(|table, _| {
            let known = |open: &crate::table::OpenRecord| {
                open.above.iter().position(|dir| *dir == to.dir).map(|at| open.above[..=at].to_vec())
            };
            table.opens.values().find_map(known)
        });
        let above = above.unwrap_or_else(|| vec![to.dir.clone()]);
        let from = path.len().saturating_sub(above.len());
        self.report((&above, &path[from..]), ADDED, name_filter(open.is_directory()));
    }

    /// A name in a directory has changed by a call of another front door.
    pub(crate) fn beside(&self, link: &Link, action: u32) {
        if self.is_idle() {
            return;
        }
        if let Some(name) = crate::path::name_of(&link.label, false) {
            self.report((std::slice::from_ref(&link.dir), &[name]), action, FILE_NAME | DIR_NAME);
        }
    }

    /// The directory is about to go.
    pub(crate) fn deleting(&self, open: &Open) {
        let is_it = |watched: &&Arc<Watched>| watched.dir == *open.file();
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

fn name_filter(is_directory: bool) -> u32 {
    if is_directory { DIR_NAME } else { FILE_NAME }
}
