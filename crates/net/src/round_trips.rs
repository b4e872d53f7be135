//! Round trips to other machines, from a request to its answer: a smoothed figure for each
//! connection, as long as that is up.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;
use wire::MachineId;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TimedConnection {
    /// A client's session: renewals are timed.
    Session,
    /// The server group: each call is timed, most of them entries or heartbeats.
    Group,
    /// Shares: each request is timed.
    Shares,
}

/// The round trips of one machine's connections.
#[derive(Debug, Default)]
pub struct RoundTrips(Mutex<BTreeMap<(MachineId, TimedConnection), Weak<RoundTrip>>>);

/// A smoothed round trip, nanoseconds; 0 before the first. The connections that it measures hold
/// it.
#[derive(Debug, Default)]
pub struct RoundTrip(AtomicU64);

/// The round trip to a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundTripReport {
    /// The machine's number.
    pub machine: u64,
    /// The connection's purpose: `session`, `group` or `shares`.
    pub connection: String,
    /// From a request to its answer, smoothed.
    pub seconds: f64,
}

impl TimedConnection {
    fn name(self) -> &'static str {
        match self {
            TimedConnection::Session => "session",
            TimedConnection::Group => "group",
            TimedConnection::Shares => "shares",
        }
    }
}

impl RoundTrips {
    /// Returns the figure for a connection to `machine`. Several connections for one purpose share
    /// it.
    pub fn to(&self, machine: MachineId, connection: TimedConnection) -> Arc<RoundTrip> {
        let mut known = self.0.lock();
        if let Some(round_trip) = known.get(&(machine, connection)).and_then(Weak::upgrade) {
            return round_trip;
        }
        let round_trip = Arc::new(RoundTrip::default());
        known.retain(|_, other| other.strong_count() > 0);
        known.insert((machine, connection), Arc::downgrade(&round_trip));
        round_trip
    }

    /// Returns the figures of now, by machine.
    pub fn report(&self) -> Vec<RoundTripReport> {
        let known = self.0.lock();
        let figures = known.iter().filter_map(|((machine, connection), round_trip)| {
            let nanos = round_trip.upgrade()?.0.load(Relaxed);
            (nanos > 0).then(|| RoundTripReport {
                machine: machine.0,
                connection: connection.name().to_owned(),
                seconds: Duration::from_nanos(nanos).as_secs_f64(),
            })
        });
        figures.collect()
    }
}

impl RoundTrip {
    /// Notes that an answer took so long.
    pub fn note(&self, took: Duration) {
        // Relaxed: a figure orders nothing.
        let _ = self.0.fetch_update(Relaxed, Relaxed, |before| {
            let now = smoothed(Duration::from_nanos(before), took);
            Some((now.as_nanos() as u64).max(1))
        });
    }
}

/// Smooths a figure with one more measurement, as TCP does (RFC 6298).
pub(crate) fn smoothed(before: Duration, took: Duration) -> Duration {
    if before.is_zero() { took } else { (before * 7 + took) / 8 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: MachineId = MachineId(2);

    #[test]
    fn a_figure_follows_what_answers_take() {
        let ms = Duration::from_millis;
        let round_trips = RoundTrips::default();
        let round_trip = round_trips.to(PEER, TimedConnection::Group);
        assert_eq!(round_trips.report(), []);
        let figure = || round_trips.report()[0].seconds;
        round_trip.note(ms(8));
        assert_eq!(figure(), 0.008);
        round_trip.note(ms(16));
        assert_eq!(figure(), 0.009);
        (0..100).for_each(|_| round_trip.note(ms(16)));
        assert!((0.015..=0.016).contains(&figure()), "{}", figure());
    }

    #[test]
    fn a_figure_is_there_as_long_as_a_connection() {
        let round_trips = RoundTrips::default();
        let (one, other) =
            (round_trips.to(PEER, TimedConnection::Group), round_trips.to(PEER, TimedConnection::Group));
        let shares = round_trips.to(PEER, TimedConnection::Shares);
        one.note(Duration::from_micros(1));
        shares.note(Duration::from_micros(2));
        drop(one);
        let connections =
            || -> Vec<String> { round_trips.report().into_iter().map(|report| report.connection).collect() };
        assert_eq!(connections(), ["group", "shares"]);
        drop(other);
        assert_eq!(connections(), ["shares"]);
        // The next connection begins anew.
        let _again = round_trips.to(PEER, TimedConnection::Group);
        assert_eq!(connections(), ["shares"]);
    }
}
