//! The most frequent keys of a stream, counted in a table of a fixed size. The algorithm is
//! space-saving (Metwally et al. 2005).

use rustc_hash::FxHashMap;
use std::hash::Hash;

/// The most frequent keys and their counts. A count is never too low, and too high by no more than
/// the smallest count in the table.
#[derive(Debug)]
pub(crate) struct Busiest<K> {
    room: usize,
    counts: FxHashMap<K, u64>,
}

impl<K: Hash + Eq + Ord + Clone> Busiest<K> {
    /// A table of `room` keys.
    pub(crate) fn new(room: usize) -> Busiest<K> {
        Busiest { room, counts: FxHashMap::default() }
    }

    /// Counts `key` once. A new key takes the place and the count of the least frequent one.
    pub(crate) fn count(&mut self, key: K) {
        if let Some(count) = self.counts.get_mut(&key) {
            *count += 1;
            return;
        }
        let mut count = 0;
        if self.counts.len() >= self.room
            && let Some(least) = self.counts.iter().min_by_key(|(_, count)| **count)
        {
            let least = least.0.clone();
            count = self.counts.remove(&least).unwrap_or_default();
        }
        self.counts.insert(key, count + 1);
    }

    /// The `most` most frequent keys, the busiest first.
    pub(crate) fn top(&self, most: usize) -> Vec<(K, u64)> {
        let mut all: Vec<(K, u64)> = self.counts.iter().map(|(key, count)| (key.clone(), *count)).collect();
        all.sort_by(|(a, of_a), (b, of_b)| of_b.cmp(of_a).then_with(|| a.cmp(b)));
        all.truncate(most);
        all
    }

    /// Forgets all counts.
    pub(crate) fn clear(&mut self) {
        self.counts.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_exact_while_there_is_room() {
        let mut busiest = Busiest::new(3);
        ["a", "b", "a", "c", "a", "b"].into_iter().for_each(|key| busiest.count(key));
        assert_eq!(busiest.top(2), [("a", 3), ("b", 2)]);
        busiest.clear();
        assert!(busiest.top(2).is_empty());
    }

    #[test]
    fn what_is_frequent_stays_among_many_that_are_not() {
        let mut busiest = Busiest::new(8);
        for round in 0..1_000u64 {
            busiest.count(0);
            busiest.count(round + 1);
        }
        let top = busiest.top(8);
        assert_eq!(top.len(), 8);
        // No count is too low, and none is too high by more than the smallest in the table.
        assert_eq!(top[0].0, 0);
        assert!((1_000..=1_000 + 2_000 / 8).contains(&top[0].1), "{top:?}");
    }
}
