//! The table that `leasehold bench local` prints.

use crate::cost::Cost;
use serde::Serialize;
use std::fmt::Write;
use std::time::Duration;

/// The ratios of several rounds, each between two that did the same in turns. Rounds of one binary
/// against itself differ by a tenth on a small virtual machine, so one ratio says little.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ratios {
    /// The lower quartile: three of four rounds have more.
    pub lower: f64,
    /// The middle one.
    pub median: f64,
    /// The upper quartile: three of four rounds have less.
    pub upper: f64,
}

impl Ratios {
    /// Of at least one round.
    fn of(ratios: impl Iterator<Item = f64>) -> Option<Ratios> {
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_by(f64::total_cmp);
        let outer = ratios.len() / 4;
        let upper = *ratios.iter().rev().nth(outer)?;
        Some(Ratios { lower: *ratios.get(outer)?, median: *ratios.get(ratios.len() / 2)?, upper })
    }

    fn text(self) -> String {
        format!("{:.2} [{:.2} {:.2}]", self.median, self.lower, self.upper)
    }
}

/// One line of results.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    /// The work measured.
    pub name: String,
    /// The mount's rate over the floor's, by wall time: above 1 is faster.
    pub ratio_to_floor: Option<f64>,
    /// The mount's rate over the disk's, by wall time.
    pub ratio_to_disk: Option<f64>,
    /// The floor's CPU time over the mount's, file system and caller together: above 1 is cheaper.
    pub cpu_ratio_to_floor: Option<f64>,
    /// The same, with the mount's final syncfs counted in (the floor has nothing to sync).
    pub cpu_ratio_to_floor_synced: Option<f64>,
    /// The mount's rate over that of the mount of the binary beside, round by round.
    pub ratio_to_beside: Option<Ratios>,
    /// The CPU time of the mount of the binary beside over the mount's, file system and caller
    /// together, round by round.
    pub cpu_ratio_to_beside: Option<Ratios>,
    /// Operations (or MiB) a second.
    pub rate: Option<f64>,
    /// The floor's rate.
    pub floor_rate: Option<f64>,
    /// The disk's rate.
    pub disk_rate: Option<f64>,
    /// CPU µs for each operation (or MiB), of the file system's process.
    pub server_cpu_us: Option<f64>,
    /// CPU µs of the caller.
    pub caller_cpu_us: Option<f64>,
    /// CPU µs of the floor and its caller together.
    pub floor_cpu_us: Option<f64>,
    /// A plain figure, for work that has no rate.
    pub value: Option<f64>,
    /// The bar that the row must meet.
    pub bar: Option<String>,
    /// Whether the bar is met.
    pub met: Option<bool>,
}

impl Row {
    /// A row of `operations` that cost so much on the mount, the floor and the disk.
    pub fn of(name: String, operations: u64, mount: Cost, floor: Option<Cost>, disk: Option<Cost>) -> Row {
        let rate = |cost: Cost| operations as f64 / seconds(cost.wall);
        let per = |time: Duration| time.as_secs_f64() * 1e6 / operations as f64;
        Row {
            name,
            ratio_to_floor: floor.map(|floor| rate(mount) / rate(floor)),
            ratio_to_disk: disk.map(|disk| rate(mount) / rate(disk)),
            cpu_ratio_to_floor: floor.map(|floor| seconds(floor.cpu()) / seconds(mount.cpu())),
            rate: Some(rate(mount)),
            floor_rate: floor.map(rate),
            disk_rate: disk.map(rate),
            server_cpu_us: Some(per(mount.server)),
            caller_cpu_us: Some(per(mount.caller)),
            floor_cpu_us: floor.map(|floor| per(floor.cpu())),
            ..Row::default()
        }
    }

    /// Adds what the same operations cost in each round on the mount and on that of the binary
    /// beside.
    pub fn beside(mut self, rounds: impl Iterator<Item = (Cost, Cost)> + Clone) -> Row {
        let ratios = |of: fn(&Cost) -> Duration| {
            Ratios::of(rounds.clone().map(|(mount, beside)| seconds(of(&beside)) / seconds(of(&mount))))
        };
        self.ratio_to_beside = ratios(|cost| cost.wall);
        self.cpu_ratio_to_beside = ratios(Cost::cpu);
        self
    }

    /// A figure that must not exceed `max`.
    pub fn at_most(name: &str, value: f64, max: f64, unit: &str) -> Row {
        let bar = Some(format!("at most {max} {unit}"));
        Row { name: name.to_owned(), value: Some(value), bar, met: Some(value <= max), ..Row::default() }
    }

    /// Judges the ratio to the floor by CPU time. On small virtual machines wake-ups between cores
    /// make wall rates jump by ten. So the CPU ratio is right where the two disagree.
    pub fn floor_bar(mut self, least: f64, least_synced: Option<f64>) -> Row {
        let ratio = self.cpu_ratio_to_floor.unwrap_or(0.0);
        let synced = least_synced.is_none_or(|least| self.cpu_ratio_to_floor_synced.unwrap_or(0.0) >= least);
        let with_sync =
            least_synced.map_or(String::new(), |least| format!(", {least} with the final syncfs"));
        self.bar = Some(format!("{least} of the floor{with_sync}"));
        self.met = Some(ratio >= least && synced);
        self
    }

    /// Judges the ratio to the disk.
    pub fn disk_bar(mut self, least: f64) -> Row {
        self.bar = Some(format!("{least} of the disk"));
        self.met = Some(self.ratio_to_disk.unwrap_or(0.0) >= least);
        self
    }
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64().max(1e-9)
}

/// A figure with so many digits after the point, if there is one.
pub(crate) fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or(String::from("-"), |value| format!("{value:.digits$}"))
}

/// A bar, and whether it is met (if known).
pub(crate) fn verdict(met: Option<bool>, bar: &str) -> String {
    match met {
        Some(true) => format!("met: {bar}"),
        Some(false) => format!("MISSED: {bar}"),
        None => bar.to_owned(),
    }
}

/// The rows as text.
pub fn text(rows: &[Row]) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{:<34} {:>10} {:>10} {:>10} {:>7} {:>7} {:>7} {:>7} {:>8} {:>8} {:>8} {:>18} {:>18}  bar",
        "",
        "mount /s",
        "floor /s",
        "disk /s",
        "/floor",
        "/disk",
        "cpu/fl",
        "synced",
        "fs µs",
        "call µs",
        "floor µs",
        "/beside",
        "cpu/be"
    );
    for row in rows {
        let _ = writeln!(
            out,
            "{:<34} {:>10} {:>10} {:>10} {:>7} {:>7} {:>7} {:>7} {:>8} {:>8} {:>8} {:>18} {:>18}  {}",
            row.name,
            number(row.rate.or(row.value), 1),
            number(row.floor_rate, 1),
            number(row.disk_rate, 1),
            number(row.ratio_to_floor, 2),
            number(row.ratio_to_disk, 2),
            number(row.cpu_ratio_to_floor, 2),
            number(row.cpu_ratio_to_floor_synced, 2),
            number(row.server_cpu_us, 1),
            number(row.caller_cpu_us, 1),
            number(row.floor_cpu_us, 1),
            row.ratio_to_beside.map_or(String::from("-"), Ratios::text),
            row.cpu_ratio_to_beside.map_or(String::from("-"), Ratios::text),
            verdict(row.met, row.bar.as_deref().unwrap_or(""))
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(wall: u64) -> Cost {
        let wall = Duration::from_millis(wall);
        Cost { wall, server: wall / 2, caller: wall / 4 }
    }

    /// One round that something else has held up is not taken for a slower binary.
    #[test]
    fn a_ratio_between_binaries_is_the_middle_one_of_its_rounds() {
        let rounds = [(100, 90), (100, 100), (1000, 100), (100, 110), (50, 100), (100, 101), (100, 102)];
        let rounds = rounds.map(|(mount, beside)| (took(mount), took(beside)));
        let row = Row::default().beside(rounds.into_iter());
        let text = |ratios: Option<Ratios>| ratios.map_or(String::new(), Ratios::text);
        assert_eq!(text(row.ratio_to_beside), "1.01 [0.90 1.10]");
        assert_eq!(text(row.cpu_ratio_to_beside), "1.01 [0.90 1.10]");
        let of_one = Row::default().beside(rounds.into_iter().take(1));
        assert_eq!(text(of_one.ratio_to_beside), "0.90 [0.90 0.90]");
        assert_eq!(text(Row::default().beside([].into_iter()).ratio_to_beside), "");
    }
}
