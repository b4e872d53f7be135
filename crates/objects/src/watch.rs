//! Watches: changes below a directory (MS-FSA §2.1.5.11, MS-SMB2 §3.3.5.19).

use crate::table::{OpenRecord, Table};
use crate::watches::{ADDED, Heard, MODIFIED, REMOVED, Watched, name_filter};
use crate::{Change, Open, Store, StoreError, rights};
use client::call;
use ident::FileId;
use namespace::Link;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::oneshot;

/// The changes below a directory since the watch began.
pub struct Watch {
    /// The most bytes of changes that are answered at once. With more, the client lists the
    /// directory.
    pub room: usize,
    watched: Arc<Watched>,
    store: Arc<Store>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.store.watches.remove(&self.watched);
    }
}

impl Watch {
    /// The next changes, as many as there are; waits until there is one. Nothing
    /// (STATUS_NOTIFY_ENUM_DIR) says that there were more than could be kept, or that something
    /// changed that cannot be named: the client lists the directory anew.
    /// [`StoreError::Closed`] (STATUS_NOTIFY_CLEANUP) says that the open is closed;
    /// [`StoreError::DeletePending`] that the directory is being deleted.
    pub async fn changes(&self) -> Result<Vec<Change>, StoreError> {
        let (tell, told) = oneshot::channel();
        {
            let mut state = self.watched.state.lock();
            state.waiting.push_back(tell);
            self.watched.answer(&mut state);
        }
        let mut waiting = WaitingNotify { watched: &self.watched, told };
        if !self.watched.is_armed.swap(true, Ordering::Relaxed) {
            // The machine hears of other machines' changes to names that it holds.
            let dir = self.watched.dir.clone();
            let call = call::List { dir, after: 0, upto: None, limit: 1, stat: false };
            let _ = self.store.service.ask(&namespace::Cred::default(), call).await;
        }
        (&mut waiting.told).await.unwrap_or(Err(StoreError::Closed))
    }
}

/// A request that waits for changes. One that is given up gives back what it was told meanwhile.
struct WaitingNotify<'a> {
    watched: &'a Watched,
    told: oneshot::Receiver<Heard>,
}

impl Drop for WaitingNotify<'_> {
    fn drop(&mut self) {
        self.told.close();
        if let Ok(Ok(changes)) = self.told.try_recv() {
            self.watched.give_back(changes);
        }
    }
}

impl Open {
    /// Watches a directory, and with `subtree` all below it. Needs LIST_DIRECTORY. `filter` has the
    /// bits of CompletionFilter (MS-SMB2 §2.2.35). Changes are kept from here until the watch is
    /// dropped: the caller keeps one for each open. `room` is for the caller.
    /// [`StoreError::DeletePending`] says that the directory is being deleted.
    pub fn watch(&self, filter: u32, subtree: bool, room: usize) -> Result<Watch, StoreError> {
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
        });
        let store = self.store();
        store.watches.add(&watched);
        let watch = Watch { room, watched, store: Arc::clone(store) };
        // A deletion is noted before watches hear of it: one that this watch was too late for is
        // seen here.
        let known =
            |table: &mut Table| table.objects.get(&self.object()).map(|known| known.deleting.is_some());
        if store.with(|table, _| known(table)) == Some(true) {
            Err(StoreError::DeletePending)
        } else {
            Ok(watch)
        }
    }
}

/// The directories above an open, from the share's root, and the names on the way.
pub(crate) type WatchedPlace = (Vec<FileId>, Vec<String>);

impl Open {
    /// Tells those who watch that the file was made.
    pub(crate) fn report_added(&self) {
        self.report(ADDED, name_filter(self.is_directory()));
    }

    /// Tells those who watch that the file's name is gone.
    pub(crate) fn report_removed(&self) {
        self.report(REMOVED, name_filter(self.is_directory()));
    }

    /// Tells those who watch that the file's content or attributes have changed.
    pub(crate) fn report_modified(&self, filter: u32) {
        self.report(MODIFIED, filter);
    }

    /// Tells those who watch that the file has gone from its old place to where it is now.
    pub(crate) fn report_renamed(&self, old: Option<WatchedPlace>) {
        if let (Some((above, path)), Some(old)) = (self.watched_place(), old) {
            let watches = &self.store().watches;
            watches.renamed((&old.0, &old.1), (&above, &path), self.is_directory());
        }
    }

    /// Tells those who watch that the file got another name.
    pub(crate) fn report_named(&self, to: &Link, path: &[String]) {
        let watches = &self.store().watches;
        if watches.is_idle() {
            return;
        }
        let above = self.store().with(|table, _| {
            let known = |open: &OpenRecord| {
                open.above.iter().position(|dir| *dir == to.dir).map(|at| open.above[..=at].to_vec())
            };
            table.opens.values().find_map(known)
        });
        let above = above.unwrap_or_else(|| vec![to.dir.clone()]);
        let from = path.len().saturating_sub(above.len());
        watches.report((&above, &path[from..]), ADDED, name_filter(self.is_directory()));
    }

    fn report(&self, action: u32, filter: u32) {
        if let Some((above, path)) = self.watched_place() {
            self.store().watches.report((&above, &path), action, filter);
        }
    }

    /// The directories above the open and its path, if anybody watches anything.
    pub(crate) fn watched_place(&self) -> Option<WatchedPlace> {
        let store = self.store();
        if store.watches.is_idle() {
            return None;
        }
        store.with(|table, _| table.opens.get(&self.id()).map(|open| (open.above.clone(), open.path.clone())))
    }
}
