//! The memory of a machine that balances the loads of servers.

use super::pace::BalancePace;
use ident::{FileId, ServerId};
use lease::Time;
use std::collections::BTreeMap;
use std::time::Instant;

/// The memory of a machine that balances.
#[derive(Debug, Default)]
pub(crate) struct Balancer {
    pub(super) pace: BalancePace,
    /// The moves that this machine has begun, by the server that began the exchange.
    pub(super) underway: BTreeMap<ServerId, RegionUnderway>,
    /// The time of each server when it was last looked at, and when that had changed.
    times: BTreeMap<ServerId, (Time, Instant)>,
}

impl Balancer {
    /// The time of a server whose replica here was last told `heard`. An idle server tells nothing,
    /// and its files come out of use all the same.
    pub(super) fn time_of(&mut self, server: ServerId, heard: Time, now: Instant) -> Time {
        let known = self.times.entry(server).or_insert((heard, now));
        if known.0 != heard {
            *known = (heard, now);
        }
        heard.after_ms(now.saturating_duration_since(known.1).as_millis() as u64)
    }
}

/// A region that goes from one server to another, by the balance.
#[derive(Debug)]
pub(super) struct RegionUnderway {
    pub(super) region: FileId,
    pub(super) from: ServerId,
    pub(super) to: ServerId,
    /// The region that comes back for it.
    pub(super) then: Option<FileId>,
    pub(super) begun: Instant,
    /// Whether it has left, once that is known.
    pub(super) left: Option<bool>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_time_of_an_idle_server_goes_on() {
        let (mut balancer, now) = (Balancer::default(), Instant::now());
        let mut told = |heard, after: u64| {
            balancer.time_of(ServerId(1), Time(heard), now + Duration::from_millis(after)).0
        };
        assert_eq!([told(500, 0), told(500, 70), told(600, 90), told(600, 95)], [500, 570, 600, 605]);
    }
}
