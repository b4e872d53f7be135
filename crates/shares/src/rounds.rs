//! Syncs that several uploads share. An upload that finds no sync under way carries one out for all
//! waiting uploads.

use std::{mem, sync::Arc, sync::OnceLock};

use parking_lot::{Condvar, Mutex};

use crate::{
    disk::{Dirty, ShareDisk},
    error::DiskError,
};

/// Group commit of syncs.
#[derive(Debug, Default)]
pub(crate) struct SyncRounds {
    state: Mutex<Rounds>,
    done: Condvar,
}

#[derive(Debug, Default)]
struct Rounds {
    /// Files waiting for the round after the current one.
    pending: Vec<Dirty>,
    next: Arc<Round>,
    busy: bool,
}

/// The result of one round. A failure counts for all: an upload cannot know whose pages were lost.
#[derive(Debug, Default)]
struct Round(OnceLock<Result<(), DiskError>>);

impl SyncRounds {
    /// Returns when `dirty` is durable.
    pub fn sync(&self, disk: &dyn ShareDisk, dirty: Vec<Dirty>) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        state.pending.extend(dirty);
        let mine = state.next.clone();
        while mine.0.get().is_none() && state.busy {
            self.done.wait(&mut state);
        }
        if let Some(result) = mine.0.get() {
            return result.clone();
        }
        let work = mem::take(&mut state.pending);
        state.next = Arc::default();
        state.busy = true;
        drop(state);
        let result = disk.sync(&work);
        // Only the thread that took `pending` of a round sets its result.
        let _ = mine.0.set(result.clone());
        self.state.lock().busy = false;
        self.done.notify_all();
        result
    }
}
