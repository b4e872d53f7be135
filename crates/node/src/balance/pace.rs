//! The pace of the balance at one machine: it acts only on a difference that lasts, and a region
//! rests after each move, or after it could not move. All of it is in memory. Every machine that
//! serves hears of every move, so the next leader of a region has its rest, too.

use super::settings::BalanceSettings;
use ident::{FileId, ServerId};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The comparisons and the moves of late.
#[derive(Clone, Debug, Default)]
pub(crate) struct BalancePace {
    /// How often in a row each server has wanted to hand something over.
    wanted: BTreeMap<ServerId, u32>,
    moved: BTreeMap<FileId, Instant>,
    stayed: BTreeMap<FileId, Stayed>,
}

/// A region that could not be handed over.
#[derive(Clone, Debug)]
struct Stayed {
    last: Instant,
    /// Attempts in a row.
    attempts: u32,
}

impl BalancePace {
    /// Notes the result of a server's comparison with another one. Returns whether the server is to
    /// act: it has wanted to so often in a row.
    pub(crate) fn compared(&mut self, server: ServerId, wants: bool, settings: &BalanceSettings) -> bool {
        if !wants {
            self.wanted.remove(&server);
            return false;
        }
        let times = self.wanted.entry(server).or_default();
        *times += 1;
        *times >= settings.rounds
    }

    /// Notes that a server acts, or leads no more: the next time it is to want that anew.
    pub(crate) fn begin_anew(&mut self, server: ServerId) {
        self.wanted.remove(&server);
    }

    /// Notes that a region was handed over, or could not be.
    pub(crate) fn heard(
        &mut self,
        region: &FileId,
        has_moved: bool,
        now: Instant,
        settings: &BalanceSettings,
    ) {
        self.forget(now, settings);
        if has_moved {
            self.stayed.remove(region);
            self.moved.insert(region.clone(), now);
            return;
        }
        let attempts = self.stayed.get(region).map_or(0, |stayed| stayed.attempts) + 1;
        self.stayed.insert(region.clone(), Stayed { last: now, attempts });
    }

    /// Whether the region is to stay for now. So is one that lies within a region that moved
    /// lately, or around one that moved or could not: they would move the same files.
    pub(crate) fn rests(&self, region: &FileId, now: Instant, settings: &BalanceSettings) -> bool {
        let is_recent = |since: Instant, rest: Duration| now.saturating_duration_since(since) < rest;
        let moved = self.moved.iter().any(|(moved, at)| {
            (moved.is_prefix_of(region) || region.is_prefix_of(moved)) && is_recent(*at, settings.rests)
        });
        let stayed = || {
            self.stayed.iter().any(|(other, stayed)| {
                region.is_prefix_of(other) && is_recent(stayed.last, settings.stays_for(stayed.attempts))
            })
        };
        moved || stayed()
    }

    /// Forgets what is over. A region that has not been tried for long begins anew.
    pub(crate) fn forget(&mut self, now: Instant, settings: &BalanceSettings) {
        let age = |since: Instant| now.saturating_duration_since(since);
        self.moved.retain(|_, at| age(*at) < settings.rests);
        self.stayed.retain(|_, stayed| age(stayed.last) < 2 * settings.stays.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn id(path: &[u64]) -> FileId {
        path.iter().fold(FileId::root(), |id, n| id.child(*n))
    }

    #[test]
    fn a_server_acts_at_the_third_time_in_a_row() {
        let (settings, mut pace) = (BalanceSettings::default(), BalancePace::default());
        let (one, other) = (ServerId(1), ServerId(2));
        let wants = [true, true, false, true, true, true, true];
        let acts = wants.map(|wants| pace.compared(one, wants, &settings));
        assert_eq!(acts, [false, false, false, false, false, true, true]);
        assert!(!pace.compared(other, true, &settings), "each for itself");
        pace.begin_anew(one);
        assert!(!pace.compared(one, true, &settings), "after an act it begins anew");
    }

    #[test]
    fn a_region_rests_for_ten_minutes_after_a_move_and_with_it_all_within_and_around() {
        let (settings, mut pace, now) = (BalanceSettings::default(), BalancePace::default(), Instant::now());
        pace.heard(&id(&[2, 3]), true, now, &settings);
        let rests = |region: &[u64], after| pace.rests(&id(region), now + after, &settings);
        for region in [[2, 3].as_slice(), &[2], &[2, 3, 4]] {
            assert!(rests(region, Duration::ZERO) && rests(region, 9 * MINUTE), "{region:?}");
            assert!(!rests(region, 10 * MINUTE), "{region:?}");
        }
        assert!(!rests(&[2, 4], Duration::ZERO) && !rests(&[3], Duration::ZERO));
    }

    #[test]
    fn a_region_that_cannot_move_rests_twice_as_long_each_time() {
        let (settings, mut pace) = (BalanceSettings::default(), BalancePace::default());
        let (region, mut now) = (id(&[2, 3]), Instant::now());
        for minutes in [2, 4, 8, 16, 30, 30] {
            pace.heard(&region, false, now, &settings);
            let almost = now + minutes * MINUTE - Duration::from_millis(1);
            assert!(pace.rests(&region, almost, &settings), "{minutes} min");
            assert!(pace.rests(&id(&[2]), almost, &settings), "the file in use is in there");
            assert!(!pace.rests(&id(&[2, 3, 4]), almost, &settings), "perhaps not in there");
            now += minutes * MINUTE;
            assert!(!pace.rests(&region, now, &settings), "{minutes} min");
            pace.forget(now, &settings);
        }
        pace.heard(&region, true, now, &settings);
        pace.heard(&region, false, now + 11 * MINUTE, &settings);
        assert!(!pace.rests(&region, now + 13 * MINUTE, &settings), "a move is a new beginning");
        for after in [0, 3, 5, 80] {
            pace.heard(&region, false, now + (20 + after) * MINUTE, &settings);
        }
        assert!(!pace.rests(&region, now + 102 * MINUTE, &settings), "so is a long time");
    }

    proptest! {
        /// Nothing that still matters is forgotten.
        #[test]
        fn to_forget_changes_no_rest(
            heard in proptest::collection::vec((1_u64..4, 1_u64..4, any::<bool>(), 0_u64..600, 0_u64..4_000), 1..40),
        ) {
            let settings = BalanceSettings::default();
            let mut one = BalancePace::default();
            let mut now = Instant::now();
            for (a, b, moved, after, until) in heard {
                now += Duration::from_secs(after);
                one.heard(&id(&[a, b]), moved, now, &settings);
                let later = now + Duration::from_secs(until);
                let mut other = one.clone();
                other.forget(later, &settings);
                for region in [id(&[1]), id(&[a, b]), id(&[2, 2]), id(&[3, 1, 1])] {
                    let rests = |pace: &BalancePace| pace.rests(&region, later, &settings);
                    prop_assert_eq!(rests(&one), rests(&other));
                }
            }
        }
    }
}
