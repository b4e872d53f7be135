//! A server's rows as its disk has them, each with a checksum. A rotten row is noticed when it is
//! read. The reader must then forget all that it did with the row (`raft` unwinds the reader's
//! work).

use directory::{MemoryStore, Store};
use std::cell::Cell;
use std::collections::BTreeSet;

/// The rows, and their damage.
#[derive(Clone, Debug, Default)]
pub(super) struct Rows {
    pub store: MemoryStore,
    /// Rows that are not as they were written.
    rotten: BTreeSet<Vec<u8>>,
    /// Whether one of them was read.
    noticed: Cell<bool>,
}

impl From<MemoryStore> for Rows {
    fn from(store: MemoryStore) -> Rows {
        Rows { store, ..Rows::default() }
    }
}

impl Rows {
    /// Flips a bit of a row, as `some` chooses. Returns the row's key, its old value and its new
    /// value.
    pub fn rot(&mut self, some: &mut impl FnMut(u64) -> u64) -> Option<(Vec<u8>, Vec<u8>, Vec<u8>)> {
        let row = some(self.store.rows.len() as u64) as usize;
        let (key, was) = self.store.rows.iter().nth(row).map(|(key, row)| (key.clone(), row.clone()))?;
        let (bit, mut is) = (some(8 * was.len() as u64), was.clone());
        *is.get_mut((bit / 8) as usize)? ^= 1 << (bit % 8);
        self.rots(&key, &was, is.clone());
        Some((key, was, is))
    }

    /// Replaces a row by a rotten one, if the row is still as it was.
    pub fn rots(&mut self, key: &[u8], was: &[u8], is: Vec<u8>) {
        if let Some(row) = self.store.rows.get_mut(key).filter(|row| *row == was) {
            *row = is;
            self.rotten.insert(key.to_vec());
        }
    }

    /// Whether any row is not as it was written. A reader of all rows notices that.
    pub fn are_rotten(&self) -> bool {
        !self.rotten.is_empty()
    }

    /// Whether a reader came upon one.
    pub fn is_noticed(&self) -> bool {
        self.noticed.get()
    }

    fn look(&self, key: &[u8]) {
        if self.rotten.contains(key) {
            self.noticed.set(true);
        }
    }
}

impl Store for Rows {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.look(key);
        self.store.get(key)
    }

    fn put(&mut self, key: &[u8], value: Vec<u8>) {
        self.rotten.remove(key);
        self.store.put(key, value);
    }

    fn delete(&mut self, key: &[u8]) {
        self.rotten.remove(key);
        self.store.delete(key);
    }

    fn walk(&self, start: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        self.store.walk(start, end, &mut |key, value| {
            self.look(key);
            visit(key, value)
        });
    }
}
