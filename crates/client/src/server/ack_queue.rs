//! Things that wait until the server has acknowledged an entry of the log.

use ident::FileId;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Items, each behind the log entry (by sequence number) whose acknowledgment it waits for.
///
/// An item that waits for an earlier entry than the item before it leaves together with that one.
#[derive(Debug)]
pub(crate) struct AckQueue<T>(VecDeque<(u64, T)>);

impl<T> Default for AckQueue<T> {
    fn default() -> AckQueue<T> {
        AckQueue(VecDeque::new())
    }
}

impl<T> AckQueue<T> {
    /// Adds an item, which waits for the entry `sequence`.
    pub fn push(&mut self, sequence: u64, item: T) {
        self.0.push_back((sequence, item));
    }

    /// Removes the first item, if the server has acknowledged the log up to its entry.
    pub fn pop(&mut self, up_to: u64) -> Option<(u64, T)> {
        self.0.pop_front_if(|(sequence, _)| *sequence <= up_to)
    }

    /// The items in their order, and their entries.
    pub fn iter(&self) -> impl Iterator<Item = &(u64, T)> {
        self.0.iter()
    }

    /// Whether no item waits for this entry or an earlier one.
    pub fn is_past(&self, sequence: u64) -> bool {
        self.0.front().is_none_or(|(first, _)| *first > sequence)
    }

    /// Drops all items.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Files that an unacknowledged entry of the log concerns.
#[derive(Debug, Default)]
pub(crate) struct UnackedFiles {
    queue: AckQueue<FileId>,
    /// The last such entry of each file.
    last: FxHashMap<FileId, u64>,
}

impl UnackedFiles {
    /// Adds `file`, which the entry `sequence` concerns. It is the last entry of the log.
    pub fn push(&mut self, sequence: u64, file: &FileId) {
        if self.last.insert(file.clone(), sequence) != Some(sequence) {
            self.queue.push(sequence, file.clone());
        }
    }

    /// Whether `file` is among them.
    pub fn has(&self, file: &FileId) -> bool {
        self.last.contains_key(file)
    }

    /// Removes the files that only entries up to `through` concern.
    pub fn acknowledge(&mut self, up_to: u64) {
        while let Some((sequence, file)) = self.queue.pop(up_to) {
            if self.last.get(&file) == Some(&sequence) {
                self.last.remove(&file);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_waits_for_its_entry_and_for_the_items_before() {
        let mut queue = AckQueue::default();
        assert!(queue.is_past(9));
        for (sequence, item) in [(3, 'a'), (5, 'b'), (4, 'c'), (8, 'd')] {
            queue.push(sequence, item);
        }
        assert!(queue.is_past(2) && !queue.is_past(3));
        assert_eq!((queue.pop(4), queue.pop(4)), (Some((3, 'a')), None));
        assert_eq!((queue.pop(5), queue.pop(5), queue.pop(5)), (Some((5, 'b')), Some((4, 'c')), None));
        assert_eq!(queue.iter().collect::<Vec<_>>(), [&(8, 'd')]);
    }

    #[test]
    fn a_file_waits_for_the_last_entry_that_concerns_it() {
        let (mut files, [one, other]) = (UnackedFiles::default(), [1, 2].map(|n| FileId::root().child(n)));
        files.push(1, &one);
        files.push(2, &other);
        files.push(3, &one);
        files.push(3, &one);
        files.acknowledge(2);
        assert!(files.has(&one) && !files.has(&other));
        files.acknowledge(3);
        assert!(!files.has(&one) && files.queue.iter().next().is_none());
    }
}
