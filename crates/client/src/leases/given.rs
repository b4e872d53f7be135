//! Directory entries that a front door has given to the kernel, which answers by them itself.

use lease::Label;
use namespace::fold;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// The age at which a given answer has arrived in the kernel, however busy the machine: its asker
/// has run again. An entry that is invalidated after that is gone.
const TAKEN_IN_MS: u32 = 100;

/// Entries of one directory, for present and absent names, by the exact names that the kernel uses.
/// Leases are on folded names, and several entries may have the same fold.
#[derive(Debug, Default)]
pub struct Given {
    names: FxHashMap<Label, When>,
    /// Names that differ from their fold, by that fold. Ordinary names are not among them.
    unfolded: FxHashMap<Label, SmallVec<[Label; 1]>>,
}

/// When an entry was given last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// The number of entries of the mount that were given before it.
    pub turn: u32,
    /// Milliseconds since the mount began.
    pub at_ms: u32,
    /// It was invalidated since, but its answer may have arrived in the kernel only after that.
    pub was_told: bool,
}

impl When {
    /// Whether it is more than `turns` turns old at `now`. The turn counter wraps.
    pub fn is_older(self, turns: u32, now: u32) -> bool {
        now.wrapping_sub(self.turn) > turns
    }

    /// Whether the answer has been on its way long enough at `now_ms` to have arrived.
    pub fn is_taken_in(self, now_ms: u32) -> bool {
        now_ms.wrapping_sub(self.at_ms) > TAKEN_IN_MS
    }
}

/// Entries to be invalidated, and when they were given.
pub type Entries = Vec<(Label, When)>;

impl Given {
    /// Adds `label`, which the kernel is about to receive. Returns whether it was absent before.
    pub fn give(&mut self, label: &Label, when: When) -> bool {
        if let Some(known) = self.names.get_mut(label) {
            *known = when;
            return false;
        }
        self.names.insert(label.clone(), when);
        let folded = fold(label);
        if folded != *label {
            self.unfolded.entry(folded).or_default().push(label.clone());
        }
        true
    }

    /// Whether any name folds to `folded` and was not invalidated since it was given.
    pub fn has_folding_to(&self, folded: &Label) -> bool {
        let others = self.unfolded.get(folded).into_iter().flatten();
        let is_there = |label: &Label| self.names.get(label).is_some_and(|when| !when.was_told);
        std::iter::once(folded).chain(others).any(is_there)
    }

    /// Marks `label` as invalidated, unless it was given again since `given`. It stays, because its
    /// answer may arrive after the invalidation.
    pub fn tell(&mut self, label: &Label, given: When) {
        if let Some(when) = self.names.get_mut(label).filter(|when| **when == given) {
            when.was_told = true;
        }
    }

    /// Whether any entry was not invalidated since it was given.
    pub fn has_untold(&self) -> bool {
        self.names.values().any(|when| !when.was_told)
    }

    /// The entries whose names fold to `folded`.
    pub fn folding_to(&self, folded: &Label) -> Entries {
        let others = self.unfolded.get(folded).into_iter().flatten();
        std::iter::once(folded)
            .chain(others)
            .filter_map(|label| Some((label.clone(), *self.names.get(label)?)))
            .collect()
    }

    /// All entries.
    pub fn all(&self) -> Entries {
        self.names.iter().map(|(label, when)| (label.clone(), *when)).collect()
    }

    /// The entries that were given more than `turns` turns ago.
    pub fn older(&self, turns: u32, now: u32) -> Entries {
        let of = self.names.iter().filter(|(_, when)| when.is_older(turns, now));
        of.map(|(label, when)| (label.clone(), *when)).collect()
    }

    /// Removes `label`, which is invalidated, unless it was given again since `given`. Returns
    /// whether it was removed.
    pub fn forget(&mut self, label: &Label, given: When) -> bool {
        self.names.get(label) == Some(&given) && self.drop(label)
    }

    /// Removes `label`. Returns whether it was there.
    pub fn drop(&mut self, label: &Label) -> bool {
        if self.names.remove(label).is_none() {
            return false;
        }
        let folded = fold(label);
        if folded != *label
            && let Some(others) = self.unfolded.get_mut(&folded)
        {
            others.retain(|other| other != label);
            if others.is_empty() {
                self.unfolded.remove(&folded);
            }
        }
        true
    }

    /// Whether `label` is among the entries.
    pub fn has(&self, label: &Label) -> bool {
        self.names.contains_key(label)
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.names.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const fn when(turn: u32) -> When {
        When { turn, at_ms: 0, was_told: false }
    }

    fn label(name: &str) -> Label {
        Label::new(name.as_bytes()).unwrap()
    }

    /// Names of which some fold together, one with letters outside ASCII in its fold, ...
    const NAMES: [&str; 8] = ["readme", "README", "Readme", "s", "ſ", "k", "\u{212a}", "É"];

    #[test]
    fn a_lease_on_a_fold_is_of_every_name_that_folds_to_it() {
        let mut given = Given::default();
        for (turn, name) in NAMES.iter().enumerate() {
            assert!(given.give(&label(name), when(turn as u32)));
        }
        let named = |fold: &str| {
            let of = given.folding_to(&label(fold));
            of.into_iter().map(|(label, _)| label.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(named("readme"), ["readme", "README", "Readme"]);
        assert_eq!(named("s"), ["s", "\\xc5\\xbf"]);
        assert_eq!(named("k").len(), 2);
        assert_eq!(named("é"), ["\\xc3\\x89"]);
        assert!(named("e").is_empty() && named("reader").is_empty());
    }

    #[test]
    fn what_is_given_again_meanwhile_stays() {
        let mut given = Given::default();
        let (readme, before) = (label("README"), when(1));
        given.give(&readme, before);
        assert!(!given.give(&readme, when(2)));
        assert!(!given.forget(&readme, before));
        given.tell(&readme, before);
        assert!(given.has_untold() && given.has_folding_to(&label("readme")));
        given.tell(&readme, when(2));
        assert!(!given.has_untold() && !given.has_folding_to(&label("readme")));
        given.give(&readme, when(2));
        assert_eq!(given.folding_to(&label("readme")), [(readme.clone(), when(2))]);
        assert!(given.forget(&readme, when(2)) && !given.forget(&readme, when(2)));
        assert!(given.folding_to(&label("readme")).is_empty() && given.unfolded.is_empty());
    }

    #[test]
    fn turns_and_milliseconds_are_counted_round() {
        let last = When { turn: u32::MAX, at_ms: u32::MAX, was_told: false };
        assert!(!last.is_older(3, 2) && last.is_older(3, 3));
        assert!(!last.is_taken_in(TAKEN_IN_MS - 1) && last.is_taken_in(TAKEN_IN_MS));
    }

    proptest! {
        #[test]
        fn as_a_plain_map_has_it(steps in prop::collection::vec((0..NAMES.len(), 0..4_u32, any::<bool>()), 0..60)) {
            let (mut given, mut model) = (Given::default(), std::collections::BTreeMap::new());
            for (name, turn, gives) in steps {
                let label = label(NAMES[name]);
                if gives {
                    prop_assert_eq!(given.give(&label, when(turn)), model.insert(label, when(turn)).is_none());
                } else {
                    let is_it = model.get(&label) == Some(&when(turn));
                    prop_assert_eq!(given.forget(&label, when(turn)), is_it);
                    model.retain(|known, _| !is_it || *known != label);
                }
                prop_assert_eq!(given.len(), model.len());
                for name in NAMES.map(self::label) {
                    let folded = fold(&name);
                    let mut told = given.folding_to(&folded);
                    told.sort_by(|a, b| a.0.cmp(&b.0));
                    let so = model.iter().filter(|(label, _)| fold(label) == folded);
                    prop_assert_eq!(given.has_folding_to(&folded), !told.is_empty());
                    prop_assert_eq!(told, so.map(|(label, when)| (label.clone(), *when)).collect::<Vec<_>>());
                }
            }
        }
    }
}
