//! The table that `leasehold bench shared` prints.

use super::testbed::Measured;
use crate::table::{number, verdict};
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// One line of results.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SharedRow {
    /// The work measured.
    pub name: String,
    /// Operations a second.
    pub rate: Option<f64>,
    /// The rate it is compared with: one machine alone, or null FUSE file systems under the same
    /// calls.
    pub beside_rate: Option<f64>,
    /// The row's rate over that rate; with several rounds, the median ratio.
    pub ratio: Option<f64>,
    /// Messages between clients and server, for each operation. Renewals and the preparation count,
    /// as in the two fields that follow.
    pub messages: Option<f64>,
    /// Recalls for each operation.
    pub recalls: Option<f64>,
    /// Flushes of the log for each operation.
    pub flushes: Option<f64>,
    /// The bars that the row must meet.
    pub bars: Vec<Bar>,
}

/// A bar.
#[derive(Clone, Debug, Serialize)]
pub struct Bar {
    /// The condition.
    pub bar: String,
    /// Whether it is met.
    pub met: bool,
}

/// The most that one operation may cost.
#[derive(Clone, Copy, Debug)]
pub struct OperationCosts {
    /// Messages to and from the server.
    pub messages: f64,
    /// Recalls of leases.
    pub recalls: f64,
    /// Flushes of the server's log.
    pub flushes: f64,
}

impl SharedRow {
    /// A row of so many operations a second.
    pub fn of(name: impl Into<String>, rate: f64) -> SharedRow {
        SharedRow { name: name.into(), rate: Some(rate), ..SharedRow::default() }
    }

    /// A row of an operation that takes so long.
    pub fn time(name: impl Into<String>, takes: Duration) -> SharedRow {
        SharedRow::of(name, 1.0 / takes.as_secs_f64())
    }

    /// A row of work between machines.
    pub fn between(name: impl Into<String>, measured: &Measured) -> SharedRow {
        let each = |count: u64| Some(count as f64 / measured.operations as f64);
        SharedRow {
            messages: each(measured.counts.messages),
            recalls: each(measured.counts.recalls),
            flushes: each(measured.counts.flushes),
            ..SharedRow::of(name, measured.operations as f64 / measured.wall.as_secs_f64())
        }
    }

    /// A row of a part that failed.
    pub fn failed(name: &str, error: &std::io::Error) -> SharedRow {
        SharedRow { name: name.to_owned(), ..SharedRow::default() }.bar(error.to_string(), false)
    }

    /// A row of a cost and the cost `beside` it. Only their ratio is kept.
    pub fn cost(name: impl Into<String>, cost: f64, beside: f64) -> SharedRow {
        SharedRow { name: name.into(), ratio: Some(cost / beside), ..SharedRow::default() }
    }

    /// Adds the rate that the row is compared with.
    pub fn beside(mut self, rate: f64) -> SharedRow {
        self.beside_rate = Some(rate);
        self.ratio = self.rate.map(|own| own / rate);
        self
    }

    fn bar(mut self, bar: String, met: bool) -> SharedRow {
        self.bars.push(Bar { bar, met });
        self
    }

    /// The row's rate must be at least this ratio of the compared rate.
    pub fn ratio_bar(self, least: f64) -> SharedRow {
        let met = self.ratio.is_some_and(|ratio| ratio >= least);
        self.bar(format!("{least:.2} of one machine"), met)
    }

    /// The row's cost must be at most so many times the compared cost.
    pub fn cost_bar(self, most: f64) -> SharedRow {
        let met = self.ratio.is_some_and(|ratio| ratio <= most);
        self.bar(format!("{most} times"), met)
    }

    /// The figure must be at most this.
    pub fn most_bar(self, most: f64) -> SharedRow {
        let met = self.rate.is_some_and(|figure| figure <= most);
        self.bar(format!("at most {most}"), met)
    }

    /// The rate must be at least so many a second.
    pub fn rate_bar(self, least: f64, why: &str) -> SharedRow {
        let met = self.rate.is_some_and(|rate| rate >= least);
        self.bar(format!("{least}/s ({why})"), met)
    }

    /// Each operation must take at most so long.
    pub fn time_bar(self, most: Duration, why: &str) -> SharedRow {
        let met = self.rate.is_some_and(|rate| 1.0 / rate <= most.as_secs_f64());
        self.bar(format!("{} µs ({why})", most.as_micros()), met)
    }

    /// Each operation may cost at most so many messages, to a tenth: there are renewals among them.
    pub fn message_bar(self, most: f64) -> SharedRow {
        let met = self.messages.is_some_and(|messages| to_a_tenth(messages) <= most);
        self.bar(format!("{most} messages"), met)
    }

    /// Each operation may cost at most so many flushes of the log, to a tenth.
    pub fn flush_bar(self, most: f64) -> SharedRow {
        let met = self.flushes.is_some_and(|flushes| to_a_tenth(flushes) <= most);
        self.bar(format!("{most} flushes"), met)
    }

    /// A hundred operations may cost at most so many recalls.
    pub fn recall_bar(self, most: f64) -> SharedRow {
        let met = self.recalls.is_some_and(|recalls| recalls * 100.0 <= most);
        self.bar(format!("{most} recalls in 100"), met)
    }

    /// Each operation may cost at most so much.
    pub fn costs_bar(self, most: OperationCosts) -> SharedRow {
        let OperationCosts { messages, recalls, flushes } = most;
        let costs = [(self.messages, messages), (self.recalls, recalls), (self.flushes, flushes)];
        let met = costs.iter().all(|(cost, most)| cost.is_some_and(|cost| cost <= *most));
        self.bar(format!("{messages} messages, {recalls} recalls, {flushes} flushes"), met)
    }

    /// Whether all its bars are met.
    pub fn met(&self) -> bool {
        self.bars.iter().all(|bar| bar.met)
    }
}

fn to_a_tenth(figure: f64) -> f64 {
    (figure * 10.0).round() / 10.0
}

/// The rows as text.
pub fn text(rows: &[SharedRow]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:<38} {:>10} {:>10} {:>10} {:>7} {:>8} {:>8} {:>8}  bars",
        "", "/s", "µs each", "beside /s", "ratio", "messages", "recalls", "flushes"
    );
    for row in rows {
        let bars: Vec<String> = row.bars.iter().map(|bar| verdict(Some(bar.met), &bar.bar)).collect();
        let _ = writeln!(
            out,
            "{:<38} {:>10} {:>10} {:>10} {:>7} {:>8} {:>8} {:>8}  {}",
            row.name,
            number(row.rate, 1),
            number(row.rate.map(|rate| 1e6 / rate), 1),
            number(row.beside_rate, 1),
            number(row.ratio, 2),
            number(row.messages, 3),
            number(row.recalls, 4),
            number(row.flushes, 3),
            bars.join(", ")
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::testbed::Counts;
    use super::*;

    fn row(messages: u64, flushes: u64, recalls: u64) -> SharedRow {
        let counts = Counts { messages, recalls, flushes };
        SharedRow::between("work", &Measured { operations: 1000, wall: Duration::from_secs(2), counts })
    }

    #[test]
    fn renewals_do_not_miss_a_bar_and_one_more_message_in_ten_does() {
        assert!(row(4040, 1040, 0).message_bar(4.0).flush_bar(1.0).met());
        assert!(!row(4100, 1000, 0).message_bar(4.0).met());
        assert!(!row(4000, 1100, 0).flush_bar(1.0).met());
        assert!(row(0, 0, 10).recall_bar(1.0).met());
        assert!(!row(0, 0, 11).recall_bar(1.0).met());
        const MOST: OperationCosts = OperationCosts { messages: 0.05, recalls: 0.01, flushes: 0.01 };
        assert!(row(50, 10, 10).costs_bar(MOST).met());
        for (messages, flushes, recalls) in [(51, 0, 0), (0, 11, 0), (0, 0, 11)] {
            assert!(!row(messages, flushes, recalls).costs_bar(MOST).met());
        }
    }

    #[test]
    fn rates_times_and_ratios_are_judged_by_their_bars() {
        let row = row(0, 0, 0);
        assert_eq!(row.rate, Some(500.0));
        assert!(row.clone().rate_bar(500.0, "").time_bar(Duration::from_millis(2), "").met());
        assert!(!row.clone().rate_bar(501.0, "").met());
        assert!(!row.clone().time_bar(Duration::from_micros(1999), "").met());
        assert!(row.clone().beside(550.0).ratio_bar(0.9).met());
        assert!(!row.clone().beside(560.0).ratio_bar(0.9).met());
        assert!(
            SharedRow::cost("", 2.1, 1.0).cost_bar(2.1).met()
                && !SharedRow::cost("", 2.2, 1.0).cost_bar(2.1).met()
        );
        // A bar without a figure to judge is not met.
        assert!(!row.clone().ratio_bar(0.9).met());
        let failed = SharedRow::failed("part", &std::io::Error::other("a stale read"));
        assert!(!failed.met() && text(&[failed]).contains("MISSED: a stale read"));
    }
}
