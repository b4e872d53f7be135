//! The changes since a checkpoint: the newest value of each changed row, or its deletion.

use parking_lot::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::ops::Bound;

/// Keys up to this length need no allocation.
const SHORT_KEY: usize = 40;

/// The cost of a row beside its value and the rest of a long key. It is its place in a hash table
/// that is two thirds full, and its key's place in the order.
const ROW_BYTES: usize = 180;

/// A row's key.
pub(super) type RowKey = SmallVec<[u8; SHORT_KEY]>;
type Rows = FxHashMap<RowKey, Option<Vec<u8>>>;

/// Changed rows. `None` hides a row of the layer below.
///
/// Rows are found by hash, since nearly all lookups are for one row. An ordered map misses the
/// processor's cache with nearly each key that it compares. The order is computed when a range is
/// asked for.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    rows: Rows,
    order: Mutex<RowOrder>,
    bytes: usize,
}

/// The keys of all rows.
#[derive(Debug, Default)]
struct RowOrder {
    sorted: BTreeSet<RowKey>,
    /// Keys that are not sorted in yet.
    new: Vec<RowKey>,
}

/// The keys of an overlay's rows in order.
pub(super) struct OrderedKeys<'a>(MutexGuard<'a, RowOrder>);

impl Overlay {
    /// Returns the value of `key`; `None` if this layer does not have it.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.rows.get(key).map(|value| value.as_deref())
    }

    pub(super) fn set(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        self.bytes += value.as_ref().map_or(0, Vec::len);
        match self.rows.entry(RowKey::from_slice(key)) {
            Entry::Occupied(mut row) => {
                self.bytes -= row.insert(value).map_or(0, |old| old.len());
            }
            Entry::Vacant(row) => {
                self.order.get_mut().new.push(row.key().clone());
                self.bytes += ROW_BYTES + if key.len() > SHORT_KEY { 2 * key.len() } else { 0 };
                row.insert(value);
            }
        }
    }

    /// Returns the keys of all rows and hidden rows in order. Other such calls wait meanwhile.
    pub(super) fn ordered(&self) -> OrderedKeys<'_> {
        let mut order = self.order.lock();
        let new = std::mem::take(&mut order.new);
        if new.len() > order.sorted.len() / 8 {
            // To sort the new keys and merge them costs less than many insertions.
            order.sorted.append(&mut new.into_iter().collect());
        } else {
            order.sorted.extend(new);
        }
        OrderedKeys(order)
    }

    /// Returns all rows and hidden rows, in order. It takes no lock.
    pub(super) fn sorted(&self) -> Vec<(&[u8], Option<&[u8]>)> {
        let mut rows: Vec<_> = self.rows.iter().map(|(key, value)| (&**key, value.as_deref())).collect();
        rows.sort_unstable_by_key(|(key, _)| *key);
        rows
    }

    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Returns about the memory in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl OrderedKeys<'_> {
    /// Returns the keys with `start <= key < end`.
    pub(super) fn range(&self, start: &[u8], end: &[u8]) -> impl Iterator<Item = &RowKey> {
        // BTreeSet::range panics on an inverted range, which here means an empty one.
        let end = end.max(start);
        self.0.sorted.range::<[u8], _>((Bound::Included(start), Bound::Excluded(end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_follow_what_is_held() {
        let mut overlay = Overlay::default();
        overlay.set(b"key", Some(vec![0; 100]));
        assert_eq!(overlay.bytes(), 100 + ROW_BYTES);
        overlay.set(b"key", Some(vec![0; 10]));
        assert_eq!(overlay.bytes(), 10 + ROW_BYTES);
        overlay.set(b"key", None);
        assert_eq!((overlay.bytes(), overlay.rows()), (ROW_BYTES, 1));
        assert_eq!(overlay.get(b"key"), Some(None));
        assert_eq!(overlay.get(b"other"), None);
    }

    #[test]
    fn order_includes_what_was_set_since_it_was_last_asked_for() {
        let mut overlay = Overlay::default();
        for key in [b"b", b"d"] {
            overlay.set(key, Some(key.to_vec()));
        }
        assert_eq!(overlay.ordered().range(b"a", b"z").count(), 2);
        overlay.set(b"c", None);
        overlay.set(b"a", Some(vec![]));
        overlay.set(b"b", Some(vec![7]));
        let ordered = overlay.ordered();
        let row = |key: &RowKey| (key.to_vec(), overlay.get(key).unwrap());
        let found: Vec<_> = ordered.range(b"a", b"d").map(row).collect();
        let all = [(b"a".to_vec(), Some(&[][..])), (b"b".to_vec(), Some(&[7])), (b"c".to_vec(), None)];
        assert_eq!(found, all);
        let sorted = overlay.sorted().into_iter().map(|(key, value)| (key.to_vec(), value));
        assert_eq!(sorted.take(3).collect::<Vec<_>>(), all);
    }

    #[test]
    fn an_inverted_range_is_empty() {
        let mut overlay = Overlay::default();
        overlay.set(b"m", Some(vec![]));
        let ordered = overlay.ordered();
        assert_eq!(ordered.range(b"z", b"a").count(), 0);
        assert_eq!(ordered.range(b"m", b"m").count(), 0);
        assert_eq!(ordered.range(b"a", b"z").count(), 1);
    }
}
