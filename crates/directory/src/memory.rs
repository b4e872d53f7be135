//! A store in memory.

use crate::Store;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Rows in an ordered map: for simulation and tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStore {
    /// The rows.
    pub rows: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl MemoryStore {
    /// Bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        self.rows.iter().map(|(key, value)| key.len() + value.len()).sum()
    }
}

impl Store for MemoryStore {
    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.rows.get(key).cloned()
    }

    fn put(&mut self, key: &[u8], value: Vec<u8>) {
        self.rows.insert(key.to_vec(), value);
    }

    fn delete(&mut self, key: &[u8]) {
        self.rows.remove(key);
    }

    fn walk(&self, start: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        if start < end {
            let rows = self.rows.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end)));
            let _ = rows.map(|(key, value)| visit(key, value)).find(|goes_on| !goes_on);
        }
    }
}
