//! The table that `leasehold bench smb` prints.

use crate::table::{number, verdict};
use serde::Serialize;
use std::fmt::Write;

/// One line of results.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SmbRow {
    /// The work measured.
    pub name: String,
    /// CPU µs of our server for each unit.
    pub cpu_us: Option<f64>,
    /// The same of Samba.
    pub samba_cpu_us: Option<f64>,
    /// Samba's CPU time over ours: above 1, ours is cheaper.
    pub cpu_ratio: Option<f64>,
    /// Units a second with our server.
    pub rate: Option<f64>,
    /// The same with Samba.
    pub samba_rate: Option<f64>,
    /// A plain figure, where a rate means nothing.
    pub value: Option<f64>,
    /// The bar that the row must meet.
    pub bar: Option<String>,
    /// Whether the bar is met.
    pub met: Option<bool>,
}

/// The cost of some work to a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    /// CPU µs for each unit.
    pub(super) cpu_us: f64,
    /// Units a second.
    pub(super) rate: f64,
}

impl SmbRow {
    /// A row of work done by both servers.
    pub(super) fn of(name: impl Into<String>, ours: Spent, samba: Spent) -> SmbRow {
        SmbRow {
            name: name.into(),
            cpu_us: Some(ours.cpu_us),
            samba_cpu_us: Some(samba.cpu_us),
            // Less than a tick of the clock was spent.
            cpu_ratio: (ours.cpu_us > 0.0).then(|| samba.cpu_us / ours.cpu_us),
            rate: Some(ours.rate),
            samba_rate: Some(samba.rate),
            ..SmbRow::default()
        }
    }

    /// Samba must take at least so many times our CPU time.
    pub(super) fn cheaper_by(self, least: f64) -> SmbRow {
        let met = self.cpu_ratio.is_some_and(|ratio| ratio >= least);
        SmbRow { bar: Some(format!("Samba takes {least} times as much CPU")), met: Some(met), ..self }
    }

    /// A figure that must not exceed `most`.
    pub(super) fn at_most(name: impl Into<String>, value: f64, most: f64, unit: &str) -> SmbRow {
        let bar = Some(format!("at most {most} {unit}"));
        SmbRow { name: name.into(), value: Some(value), bar, met: Some(value <= most), ..SmbRow::default() }
    }
}

/// The rows as text.
pub fn text(rows: &[SmbRow]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:<54} {:>9} {:>9} {:>9} {:>9} {:>6}  bar",
        "", "/s", "Samba /s", "CPU µs", "Samba µs", "ratio"
    );
    for row in rows {
        let _ = writeln!(
            out,
            "{:<54} {:>9} {:>9} {:>9} {:>9} {:>6}  {}",
            row.name,
            number(row.rate.or(row.value), 1),
            number(row.samba_rate, 1),
            number(row.cpu_us, 1),
            number(row.samba_cpu_us, 1),
            number(row.cpu_ratio, 2),
            verdict(row.met, row.bar.as_deref().unwrap_or(""))
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_and_figures_are_judged_by_their_bars() {
        let row = |ours, samba| {
            SmbRow::of("work", Spent { cpu_us: ours, rate: 1.0 }, Spent { cpu_us: samba, rate: 1.0 })
        };
        assert_eq!(row(100.0, 200.0).cheaper_by(2.0).met, Some(true));
        assert_eq!(row(101.0, 200.0).cheaper_by(2.0).met, Some(false));
        // Work that was not measured meets no bar.
        assert_eq!(row(0.0, 0.0).cheaper_by(2.0).met, Some(false));
        assert_eq!(SmbRow::at_most("memory", 512.0, 512.0, "MiB").met, Some(true));
        assert_eq!(SmbRow::at_most("memory", 513.0, 512.0, "MiB").met, Some(false));
        assert!(text(&[row(200.0, 200.0).cheaper_by(2.0)]).contains("MISSED: Samba takes 2 times"));
    }
}
