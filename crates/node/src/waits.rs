//! Reports long waits in the log: after five seconds, and again whenever that has doubled.

use std::collections::BTreeMap;

/// A wait that counts as long, ms.
pub(crate) const LONG_MS: u64 = 5_000;

/// The next report of each wait, ms, by unique numbers.
#[derive(Debug, Default)]
pub(crate) struct LongWaits(BTreeMap<u64, u64>);

impl LongWaits {
    /// Returns the long waits that are to be reported now. `wait` returns a report's number, and
    /// how long it has waited, ms.
    pub(crate) fn due<T>(&mut self, reports: Vec<T>, wait: impl Fn(&T) -> (u64, u64)) -> Vec<T> {
        let before = std::mem::take(&mut self.0);
        let is_due = |report: &T| {
            let (number, for_ms) = wait(report);
            let next = before.get(&number).copied().unwrap_or(LONG_MS);
            self.0.insert(number, if for_ms >= next { 2 * for_ms } else { next });
            for_ms >= next
        };
        reports.into_iter().filter(is_due).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_said_again_when_it_has_taken_twice_as_long() {
        let mut waits = LongWaits::default();
        let mut say = |reports: &[(u64, u64)]| {
            let said = waits.due(reports.to_vec(), |report| *report);
            said.into_iter().map(|(number, _)| number).collect::<Vec<_>>()
        };
        assert_eq!(say(&[(1, 4_999)]), [0; 0]);
        assert_eq!(say(&[(1, 5_000), (2, 9)]), [1]);
        assert_eq!(say(&[(1, 9_999), (2, 5_008)]), [2]);
        assert_eq!(say(&[(1, 10_000), (2, 5_508)]), [1]);
        assert_eq!(say(&[(1, 19_999), (2, 11_000)]), [2]);
        // A wait that is over is forgotten.
        assert_eq!(say(&[(2, 11_500)]), [0; 0]);
        assert_eq!(say(&[(1, 5_000)]), [1]);
    }
}
