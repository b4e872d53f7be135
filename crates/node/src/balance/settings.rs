//! The settings of the balance.

use directory::BalanceRule;
use std::time::Duration;

/// How a machine balances the loads of the servers that it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalanceSettings {
    /// The rule.
    pub rule: BalanceRule,
    /// A file is active for so long after its last use. A server is compared only after it was
    /// watched for as long.
    pub active: Duration,
    /// The interval of a server's comparisons.
    pub every: Duration,
    /// The comparisons in a row in which the rule wants a move before there is one.
    pub rounds: u32,
    /// The time for which a region stays after a move.
    pub rests: Duration,
    /// The time for which a region stays after it could not move, and the most that this doubles
    /// to.
    pub stays: (Duration, Duration),
}

impl Default for BalanceSettings {
    fn default() -> BalanceSettings {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        BalanceSettings {
            rule: BalanceRule::default(),
            active: Duration::from_millis(directory::ACTIVE_MS),
            every: Duration::from_secs(10),
            rounds: 3,
            rests: minutes(10),
            stays: (minutes(2), minutes(30)),
        }
    }
}

impl BalanceSettings {
    /// The time for which a region stays after so many attempts in a row.
    pub(super) fn stays_for(&self, attempts: u32) -> Duration {
        let (first, most) = self.stays;
        first.saturating_mul(1 << attempts.saturating_sub(1).min(16)).min(most)
    }
}
