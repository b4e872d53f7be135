//! Events of the last seconds: which keys had any, and how many in a row.

use crate::Time;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The time after its last event for which a key is recent, ms.
const RECENT_MS: u64 = 10_000;
/// The number of keys that are remembered.
const KEYS_MAX: usize = 4096;

/// Keys with recent events, and a value of each.
///
/// A key is remembered for longer than it is recent, until the table is full and needs room. A
/// table that is full of recent keys takes no others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recent<K: Ord, V> {
    all: BTreeMap<K, Events<V>>,
    /// No room is found before this time: the table was full of recent keys.
    full_until: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Events<V> {
    last: Time,
    /// The number of counted events, each within `RECENT_MS` of the one before.
    in_a_row: u8,
    value: V,
}

impl<V> Events<V> {
    fn are_recent(&self, now: Time) -> bool {
        now.ms_since(self.last) < RECENT_MS
    }
}

impl<K: Ord, V> Default for Recent<K, V> {
    fn default() -> Recent<K, V> {
        Recent { all: BTreeMap::new(), full_until: Time(0) }
    }
}

impl<K: Ord + Clone, V: Default> Recent<K, V> {
    /// Notes an event of `key` that counts as `events`. With 0 the key becomes recent again, and
    /// its count stays. Returns the key's value, if there is room for the key.
    pub fn note(&mut self, now: Time, key: &K, events: u8) -> Option<&mut V> {
        let of = self.events(now, key)?;
        let before = if of.are_recent(now) { of.in_a_row } else { 0 };
        (of.last, of.in_a_row) = (now, before.saturating_add(events));
        Some(&mut of.value)
    }

    /// The value of `key`, to be changed without an event. A new key is recent from now on.
    pub fn remember(&mut self, now: Time, key: &K) -> Option<&mut V> {
        self.events(now, key).map(|of| &mut of.value)
    }

    fn events(&mut self, now: Time, key: &K) -> Option<&mut Events<V>> {
        if self.all.len() >= KEYS_MAX && !self.all.contains_key(key) {
            if now < self.full_until {
                return None;
            }
            self.all.retain(|_, of| of.are_recent(now));
            if self.all.len() >= KEYS_MAX {
                // A key's last event is never earlier than it was, so no look is needed before.
                let first = self.all.values().map(|of| of.last.0).min().unwrap_or_default();
                self.full_until = Time(first.saturating_add(RECENT_MS));
                return None;
            }
        }
        let new = || Events { last: now, in_a_row: 0, value: V::default() };
        Some(self.all.entry(key.clone()).or_insert_with(new))
    }
}

impl<K: Ord, V> Recent<K, V> {
    /// The value of `key`, recent or not.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.all.get(key).map(|of| &of.value)
    }

    /// The value of `key`, recent or not, to be changed without an event.
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.all.get_mut(key).map(|of| &mut of.value)
    }

    /// The recent ones of the keys from this one on, as long as these are `among` the wanted, with
    /// their values.
    pub fn recent_among(
        &self,
        now: Time,
        from: K,
        among: impl Fn(&K) -> bool,
    ) -> impl Iterator<Item = (&K, &V)> {
        let wanted = self.all.range(from..).take_while(move |(key, _)| among(key));
        let recent = wanted.filter(move |(_, of)| of.are_recent(now));
        recent.map(|(key, of)| (key, &of.value))
    }

    /// Whether the last event of `key` is recent.
    pub fn is_recent(&self, now: Time, key: &K) -> bool {
        self.all.get(key).is_some_and(|of| of.are_recent(now))
    }

    /// The number of events of `key` in a row; 0 unless the last one is recent.
    pub fn count(&self, now: Time, key: &K) -> u8 {
        self.all.get(key).filter(|of| of.are_recent(now)).map_or(0, |of| of.in_a_row)
    }

    /// Forgets `key`.
    pub fn forget(&mut self, key: &K) {
        self.all.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_in_a_row_are_counted_and_a_pause_ends_the_row() {
        let mut recent: Recent<u64, ()> = Recent::default();
        assert_eq!(recent.count(Time(5), &1), 0);
        recent.note(Time(5), &1, 1);
        recent.note(Time(4 + RECENT_MS), &1, 1);
        assert_eq!(recent.count(Time(4 + RECENT_MS), &1), 2);
        // An event that counts for nothing makes the row longer, too.
        recent.note(Time(3 + 2 * RECENT_MS), &1, 0);
        assert_eq!(recent.count(Time(2 + 3 * RECENT_MS), &1), 2);
        assert_eq!(recent.count(Time(3 + 3 * RECENT_MS), &1), 0);
        recent.note(Time(3 + 3 * RECENT_MS), &1, 1);
        assert_eq!(recent.count(Time(3 + 3 * RECENT_MS), &1), 1);
    }

    #[test]
    fn a_value_is_remembered_for_longer_and_its_change_is_no_event() {
        let mut recent: Recent<u64, u8> = Recent::default();
        recent.note(Time(0), &1, 1);
        *recent.remember(Time(RECENT_MS - 1), &1).unwrap() = 7;
        assert!(recent.is_recent(Time(RECENT_MS - 1), &1) && !recent.is_recent(Time(RECENT_MS), &1));
        assert_eq!((recent.get(&1), recent.get(&2)), (Some(&7), None));
        *recent.get_mut(&1).unwrap() += 1;
        assert!(!recent.is_recent(Time(RECENT_MS), &1));
        assert_eq!((recent.get(&1), recent.get(&2)), (Some(&8), None));
        assert_eq!(recent.get_mut(&2), None);
        recent.forget(&1);
        assert_eq!(recent.get(&1), None);
    }

    #[test]
    fn keys_are_found_from_one_on_as_long_as_they_are_wanted_and_recent() {
        let mut recent: Recent<u64, ()> = Recent::default();
        for (at, key) in [(0, 1), (5, 2), (0, 3), (5, 4), (5, 6)] {
            recent.note(Time(at), &key, 1);
        }
        let found = |from| {
            let keys = recent.recent_among(Time(RECENT_MS), from, |key| *key < 6);
            keys.map(|(key, ())| *key).collect::<Vec<_>>()
        };
        assert_eq!((found(0), found(3), found(5)), (vec![2, 4], vec![4], vec![]));
    }

    #[test]
    fn a_full_table_forgets_what_is_not_recent_and_takes_no_more_otherwise() {
        let mut recent: Recent<usize, ()> = Recent::default();
        for key in 0..KEYS_MAX {
            assert!(recent.note(Time(key as u64 % 2), &key, 1).is_some());
        }
        assert!(recent.note(Time(2), &KEYS_MAX, 1).is_none(), "all of them are recent");
        assert!(recent.note(Time(2), &2, 1).is_some(), "it is there already");
        assert!(recent.note(Time(RECENT_MS), &KEYS_MAX, 1).is_some());
        assert_eq!(recent.all.len(), KEYS_MAX / 2 + 2);
        assert!(recent.get(&0).is_none() && recent.get(&1).is_some() && recent.get(&2).is_some());
    }
}
