//! Sensitivity to the degree of sharing, which the paper names as further work (Farsite §9.1).

use super::PaperRow;
use super::plot::{Line, Plot};
use super::report::Section;
use sim::Violation;
use sim::sharing::{Sharing, run};

/// The part's name on the command line.
pub(super) const NAME: &str = "sharing";
/// Machines, of which some work in one directory.
const MACHINES: usize = 15;
/// Machines in each directory, from none that share to all.
const TOGETHER: [usize; 5] = [1, 2, 3, 5, 15];
/// Simulated seconds of each run.
const SECONDS: u64 = 60;
/// The section of the report.
pub(super) fn section(seed: u64) -> Result<Section, Violation> {
    let of = |together: usize| Ok((together, run(seed, MACHINES, together, SECONDS)?));
    let runs = TOGETHER.into_iter().map(of).collect::<Result<Vec<_>, Violation>>()?;
    let how = format!(
        "{MACHINES} machines save and read files for {SECONDS} simulated seconds, one program each, with pauses\n\
         of 100 ms on average. Those of a group have one directory, with eight files for each of them, of\n\
         which a program takes any. A save makes a new file and renames it over the old one. A message takes\n\
         0.5 to 1.5 ms on its way. Each read is compared with what may be seen."
    );
    Ok(Section {
        title: "Sensitivity to sharing",
        place: "Farsite §9.1",
        how,
        rows: rows(&runs),
        plots: vec![plot(&runs)],
        notes: Vec::new(),
    })
}

/// So many in a hundred.
fn in_100(part: u64, of: u64) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
}

/// The figures of a run: the throughput in % of that without sharing; recalls, messages and calls
/// that waited, in a hundred saves and reads.
fn figures(it: &Sharing, none: &Sharing) -> [(&'static str, f64); 4] {
    [
        ("throughput, % of that without sharing", in_100(it.operations, none.operations)),
        ("recalls in 100 saves and reads", in_100(it.recalls, it.operations)),
        ("messages in 100 saves and reads", in_100(it.messages, it.operations)),
        ("calls that wait in 100 saves and reads", in_100(it.waited, it.operations)),
    ]
}

fn all_figures(runs: &[(usize, Sharing)]) -> impl Iterator<Item = (usize, [(&'static str, f64); 4])> {
    let none = runs.first().map(|(_, none)| *none).unwrap_or_default();
    runs.iter().map(move |(together, it)| (*together, figures(it, &none)))
}

fn rows(runs: &[(usize, Sharing)]) -> Vec<PaperRow> {
    let row = |together: usize, (counted, measured): (&str, f64)| PaperRow {
        experiment: NAME,
        control: false,
        counted: format!("{together} of {MACHINES} in a directory: {counted}"),
        paper: 0,
        measured: measured.round() as u64,
        bar: String::new(),
        met: true,
        why: "",
    };
    let of = |(together, figures): (usize, [_; 4])| figures.map(|figure| row(together, figure));
    let mut rows: Vec<PaperRow> = all_figures(runs).flat_map(of).collect();
    // Nothing is recalled of machines that share nothing.
    if let (Some(row), Some((_, none))) = (rows.get_mut(1), runs.first()) {
        (row.bar, row.met) = ("none".to_owned(), none.recalls == 0);
    }
    rows
}

fn plot(runs: &[(usize, Sharing)]) -> Plot {
    let all: Vec<_> = all_figures(runs).collect();
    let line = |at: usize| Line {
        name: all.first().map_or_else(String::new, |(_, figures)| figures[at].0.to_owned()),
        points: all.iter().map(|(together, figures)| (*together as f64, figures[at].1)).collect(),
    };
    Plot {
        name: "sharing",
        title: "Throughput, recalls and messages, as more machines share a directory",
        x: "machines in a directory",
        y: "in 100",
        lines: (0..4).map(line).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_in_a_hundred_operations_and_nothing_may_be_recalled_without_sharing() {
        let of = |operations, recalls| Sharing {
            operations,
            recalls,
            messages: 4 * recalls,
            ..Sharing::default()
        };
        let runs = [(1, of(200, 0)), (15, of(150, 30))];
        let rows = rows(&runs);
        let measured: Vec<u64> = rows.iter().map(|row| row.measured).collect();
        assert_eq!(measured, [100, 0, 0, 0, 75, 20, 80, 0]);
        assert!(rows.iter().all(|row| row.met));
        assert_eq!(plot(&runs).lines[1].points, [(1.0, 0.0), (15.0, 20.0)]);
        assert!(!super::rows(&[(1, of(200, 1))])[1].met);
    }
}
