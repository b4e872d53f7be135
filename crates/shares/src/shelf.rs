//! The shelf: the shares that may be read without the database. These are all shares except the
//! withheld ones, through a bounded number of open files. Withheld shares follow the rows, in their
//! order (see `Database::write_then`).

use std::{collections::BTreeMap, sync::Arc};

use namespace::ShareId;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::file::OpenShare;

/// Why a share is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Withheld {
    /// Its upload has not finished.
    Coming,
    /// It is being deleted.
    Going,
    /// It is in quarantine.
    Damaged,
}

/// The shelf's answer for a share.
#[derive(Debug)]
pub(crate) enum Look {
    Withheld(Withheld),
    Open(Arc<OpenShare>),
    /// The file must be opened, then handed to [`Shelf::keep`] with this number.
    Closed(u64),
}

/// The withheld shares, and the open files in order of their last use.
#[derive(Debug)]
pub(crate) struct Shelf {
    files_max: usize,
    state: Mutex<ShelfState>,
}

#[derive(Debug, Default)]
struct ShelfState {
    withheld: FxHashMap<ShareId, Withheld>,
    open: FxHashMap<ShareId, (u64, Arc<OpenShare>)>,
    by_use: BTreeMap<u64, ShareId>,
    uses: u64,
    /// Counts changes of files. A file opened before a change may have been unlinked since, and is
    /// not kept.
    changes: u64,
}

impl Shelf {
    /// An empty shelf.
    pub fn new(files_max: usize) -> Shelf {
        Shelf { files_max, state: Mutex::default() }
    }

    /// Looks a share up: whether it may be read, and whether its file is open.
    pub fn look(&self, id: &ShareId) -> Look {
        let state = &mut *self.state.lock();
        if let Some(why) = state.withheld.get(id) {
            return Look::Withheld(*why);
        }
        let Some((last_use, share)) = state.open.get_mut(id) else { return Look::Closed(state.changes) };
        state.by_use.remove(last_use);
        state.uses += 1;
        *last_use = state.uses;
        state.by_use.insert(state.uses, *id);
        Look::Open(share.clone())
    }

    /// Keeps a file open that was opened after [`Look::Closed`].
    pub fn keep(&self, share: &Arc<OpenShare>, changes: u64) {
        let state = &mut *self.state.lock();
        let id = share.header.id;
        if state.changes != changes || self.files_max == 0 || state.open.contains_key(&id) {
            return;
        }
        while state.open.len() >= self.files_max
            && let Some((_, oldest)) = state.by_use.pop_first()
        {
            state.open.remove(&oldest);
        }
        state.uses += 1;
        state.open.insert(id, (state.uses, share.clone()));
        state.by_use.insert(state.uses, id);
    }

    /// Stops serving these shares. The call comes after the row says so, and before the files
    /// change.
    pub fn withhold(&self, ids: &[ShareId], why: Withheld) {
        let state = &mut *self.state.lock();
        for id in ids {
            state.withheld.insert(*id, why);
        }
        state.close(ids);
    }

    /// Serves these shares again, from the present files.
    pub fn release(&self, ids: &[ShareId]) {
        let state = &mut *self.state.lock();
        for id in ids {
            state.withheld.remove(id);
        }
        state.close(ids);
    }
}

impl ShelfState {
    fn close(&mut self, ids: &[ShareId]) {
        self.changes += 1;
        for id in ids {
            if let Some((last_use, _)) = self.open.remove(id) {
                self.by_use.remove(&last_use);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::{Backend, ShareFile},
        disk::LocalDisk,
        header::ShareHeader,
        local::LocalFiles,
    };

    const WITHOUT_BODY: u32 = 0;

    fn files(dir: &tempfile::TempDir) -> LocalFiles {
        LocalFiles::new(Arc::new(LocalDisk::open(dir.path()).unwrap()))
    }

    fn open(files: &LocalFiles, n: u8) -> Arc<OpenShare> {
        let id = ShareId([n; 16]);
        let header = ShareHeader { id, length: WITHOUT_BODY, digest: [0; 16] };
        let file = [ShareFile { id, header: header.encode(), parts: Vec::new() }];
        files.stage(1, &file).and_then(|()| files.place(1, &file)).unwrap();
        Arc::new(OpenShare::open(files, &id).unwrap().unwrap())
    }

    fn closed(shelf: &Shelf, n: u8) -> u64 {
        match shelf.look(&ShareId([n; 16])) {
            Look::Closed(changes) => changes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_file_used_longest_ago_is_closed_first() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(&dir);
        let shelf = Shelf::new(2);
        let is_open = |n: u8| matches!(shelf.look(&ShareId([n; 16])), Look::Open(_));
        for n in [1, 2] {
            shelf.keep(&open(&files, n), closed(&shelf, n));
        }
        assert!(is_open(2) && is_open(1));
        shelf.keep(&open(&files, 3), closed(&shelf, 3));
        assert!(is_open(1) && !is_open(2) && is_open(3));
        shelf.withhold(&[ShareId([1; 16])], Withheld::Going);
        assert!(matches!(shelf.look(&ShareId([1; 16])), Look::Withheld(Withheld::Going)));
        shelf.release(&[ShareId([1; 16])]);
        assert!(!is_open(1), "the file that was open is not the one that is there now");
    }

    #[test]
    fn a_file_opened_before_it_was_deleted_is_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        let files = files(&dir);
        let shelf = Shelf::new(2);
        let changes = closed(&shelf, 1);
        let deleted = open(&files, 1);
        shelf.withhold(&[ShareId([1; 16])], Withheld::Going);
        shelf.release(&[ShareId([1; 16])]);
        shelf.keep(&deleted, changes);
        closed(&shelf, 1);
    }
}
