//! The table that `leasehold bench shares` prints.

use crate::table::{number, verdict};
use serde::Serialize;
use std::fmt::Write;

/// One line of results.
#[derive(Clone, Debug, Serialize)]
pub struct SharesRow {
    /// The work measured.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// The figure's unit.
    pub unit: &'static str,
    /// The disk's own figure, in the same run.
    pub disk: Option<f64>,
    /// The figure over the disk's.
    pub ratio: Option<f64>,
    /// The bar that the row must meet.
    pub bar: Option<String>,
    /// Whether the bar is met.
    pub met: Option<bool>,
}

impl SharesRow {
    /// A row of a figure.
    pub fn of(name: impl Into<String>, value: f64, unit: &'static str) -> SharesRow {
        SharesRow { name: name.into(), value, unit, disk: None, ratio: None, bar: None, met: None }
    }

    /// Adds the disk's figure.
    pub fn beside(self, disk: f64) -> SharesRow {
        SharesRow { disk: Some(disk), ratio: Some(self.value / disk), ..self }
    }

    fn judged(self, bar: String, met: bool) -> SharesRow {
        SharesRow { bar: Some(bar), met: Some(met), ..self }
    }

    /// The figure must be at least this.
    pub fn at_least(self, least: f64) -> SharesRow {
        let (bar, met) = (format!("at least {least} {}", self.unit), self.value >= least);
        self.judged(bar, met)
    }

    /// The figure must be less than this.
    pub fn under(self, limit: f64) -> SharesRow {
        let (bar, met) = (format!("under {limit} {}", self.unit), self.value < limit);
        self.judged(bar, met)
    }

    /// The ratio to the disk must be at least this.
    pub fn disk_bar(self, least: f64) -> SharesRow {
        let met = self.ratio.is_some_and(|ratio| ratio >= least);
        self.judged(format!("{least} of the disk"), met)
    }
}

/// The rows as text.
pub fn text(rows: &[SharesRow]) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{:<50} {:>11} {:6} {:>11} {:>7}  bar", "", "", "", "disk", "/disk");
    for row in rows {
        // As many digits as a figure of its size deserves.
        let digits = if row.value < 10.0 { 3 } else { 1 };
        let _ = writeln!(
            out,
            "{:<50} {:>11.digits$} {:6} {:>11} {:>7}  {}",
            row.name,
            row.value,
            row.unit,
            number(row.disk, 1),
            number(row.ratio, 2),
            verdict(row.met, row.bar.as_deref().unwrap_or(""))
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_and_ratios_are_judged_by_their_bars() {
        let row = |value| SharesRow::of("work", value, "/s");
        assert_eq!(row(100.0).at_least(100.0).met, Some(true));
        assert_eq!(row(99.0).at_least(100.0).met, Some(false));
        assert_eq!(row(0.9).under(1.0).met, Some(true));
        assert_eq!(row(1.0).under(1.0).met, Some(false));
        assert_eq!(row(80.0).beside(100.0).disk_bar(0.8).met, Some(true));
        assert_eq!(row(79.0).beside(100.0).disk_bar(0.8).met, Some(false));
        // A bar without a ratio to judge is not met.
        assert_eq!(row(80.0).disk_bar(0.8).met, Some(false));
        assert!(text(&[row(99.0).at_least(100.0)]).contains("MISSED: at least 100 /s"));
    }
}
