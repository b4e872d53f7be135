//! What was changed since a checkpoint: the newest value of each changed row, or that it is gone.

use std::collections::BTreeMap;
use std::ops::Bound;

/// What a row costs beside its bytes: two vectors and its part of a tree node that is two thirds full.
const ROW_BYTES: usize = 80;

/// Changed rows, in order. `None` hides a row of the layer below.
#[derive(Debug, Default)]
pub(super) struct Overlay {
    rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
}

impl Overlay {
    /// `None`: this layer knows nothing of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.rows.get(key).map(|value| value.as_deref())
    }

    pub(super) fn set(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        let key_len = key.len();
        self.bytes += value.as_ref().map_or(0, Vec::len);
        match self.rows.insert(key, value) {
            Some(old) => self.bytes -= old.map_or(0, |old| old.len()),
            None => self.bytes += key_len + ROW_BYTES,
        }
    }

    /// Rows and hidden rows with `start <= key < end`.
    pub(super) fn range<'a>(
        &'a self,
        start: &'a [u8],
        end: &'a [u8],
    ) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
        // BTreeMap::range panics on an inverted range; an empty one is meant.
        let end = end.max(start);
        self.rows
            .range::<[u8], _>((Bound::Included(start), Bound::Excluded(end)))
            .map(|(key, value)| (key.as_slice(), value.as_deref()))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.rows.iter().map(|(key, value)| (key.as_slice(), value.as_deref()))
    }

    pub(super) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_follow_what_is_held() {
        let mut overlay = Overlay::default();
        overlay.set(b"key".to_vec(), Some(vec![0; 100]));
        assert_eq!(overlay.bytes(), 103 + ROW_BYTES);
        overlay.set(b"key".to_vec(), Some(vec![0; 10]));
        assert_eq!(overlay.bytes(), 13 + ROW_BYTES);
        overlay.set(b"key".to_vec(), None);
        assert_eq!((overlay.bytes(), overlay.rows()), (3 + ROW_BYTES, 1));
        assert_eq!(overlay.get(b"key"), Some(None));
        assert_eq!(overlay.get(b"other"), None);
    }

    #[test]
    fn an_inverted_range_is_empty() {
        let mut overlay = Overlay::default();
        overlay.set(b"m".to_vec(), Some(vec![]));
        assert_eq!(overlay.range(b"z", b"a").count(), 0);
        assert_eq!(overlay.range(b"m", b"m").count(), 0);
        assert_eq!(overlay.range(b"a", b"z").count(), 1);
    }
}
