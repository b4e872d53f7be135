//! `leasehold bench paper`: the Farsite paper's measurements of its leases, repeated here.
//!
//! The benchmark counts leases and no time. It has real clients and a real server, a simulated
//! network, and a seed. So the figures are the same everywhere. Without the controls they are the
//! same on processes and sockets, too.

mod gremlins;
pub mod parts;
mod player;
pub mod plot;
mod processes;
mod renames;
pub mod report;
mod scaling;
mod sections;
mod sharing;
pub mod snapshot;

use lease::Granularity;
pub use player::play;
use serde::Serialize;
use sim::Violation;
use sim::paper::{self, Leases, Testbed};
use std::fmt::Write;

/// One of the paper's experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Experiment {
    /// Two clients edit two files in one directory (Farsite §8.2.3, §8.3.3).
    FileField,
    /// Twelve clients open one file (Farsite §8.2.4, §8.3.4).
    Disjunctive,
}

/// A figure of the paper, and ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PaperRow {
    /// The experiment's name.
    pub experiment: &'static str,
    /// Whether the row is a control: coarser leases, with which the experiment is compared.
    pub control: bool,
    /// The thing counted.
    pub counted: String,
    /// The paper's figure.
    pub paper: u64,
    /// Our figure.
    pub measured: u64,
    /// The bar that our figure must meet.
    pub bar: String,
    /// Whether the bar is met.
    pub met: bool,
    /// The reason why our figure is not the paper's.
    pub why: &'static str,
}

impl PaperRow {
    /// Our figure, and the one that it is not, if the paper has one.
    fn beside_the_papers(&self) -> String {
        match self.paper {
            0 => self.measured.to_string(),
            paper => format!("{}, not {paper}", self.measured),
        }
    }
}

#[derive(Clone, Copy)]
enum Bar {
    AtMost(u64),
    MoreThan(u64),
}

impl Bar {
    fn text(self) -> String {
        match self {
            Bar::AtMost(most) => format!("at most {most}"),
            Bar::MoreThan(least) => format!("more than {least}"),
        }
    }

    fn is_met_by(self, figure: u64) -> bool {
        match self {
            Bar::AtMost(most) => figure <= most,
            Bar::MoreThan(least) => figure > least,
        }
    }
}

impl Experiment {
    /// All experiments, in the order in which they run.
    pub const ALL: [Experiment; 2] = [Experiment::FileField, Experiment::Disjunctive];

    /// The experiment's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Experiment::FileField => "file-field",
            Experiment::Disjunctive => "disjunctive",
        }
    }

    /// Runs the experiment and its control in simulation. Fails with a description if an operation
    /// had a wrong result.
    pub fn run(self, seed: u64) -> Result<Vec<PaperRow>, Violation> {
        let coarser = match self {
            Experiment::FileField => Granularity::Files,
            Experiment::Disjunctive => Granularity::SingleWriter,
        };
        let on =
            |granularity| paper::simulated(seed, self.machines(), granularity, |office| self.count(office));
        Ok([self.rows(on(Granularity::Fields)?), self.controls(on(coarser)?)].concat())
    }

    /// Runs the experiment on machines that are processes. There is no control: their server has no
    /// coarser leases.
    pub fn run_on_processes(self, seed: u64) -> Result<Vec<PaperRow>, Violation> {
        Ok(self.rows(processes::run(seed, self.machines(), |testbed| self.count(testbed))?))
    }

    fn machines(self) -> usize {
        match self {
            Experiment::FileField => paper::EDITORS,
            Experiment::Disjunctive => paper::OPENERS + 1,
        }
    }

    fn count(self, testbed: &mut impl Testbed) -> Result<Leases, Violation> {
        match self {
            Experiment::FileField => paper::file_field(testbed),
            Experiment::Disjunctive => paper::disjunctive(testbed),
        }
    }

    fn rows(self, fields: Leases) -> Vec<PaperRow> {
        match self {
            Experiment::FileField => vec![self.row(
                false,
                "child-field leases issued",
                (6, fields.fields, Bar::AtMost(6)),
                "The first to come finds the directory unused and has it whole, in one grant (a single infinite child lease). From then on only what the second \
                 touches is asked back, name by name: its two names to be read, then to be changed. The paper's server never gives more than a name. \
                 Of a lease that a client holds already only the value is told.",
            )],
            Experiment::Disjunctive => vec![
                self.row(
                    false,
                    "grants of mode-field leases on the file",
                    (13, fields.grants, Bar::AtMost(13)),
                    "The creator of a file holds everything in it by birthright, and no lease is issued to it. Of the twelve each is granted at its first open all that any open \
                     needs which excludes nobody, together with the conflict that it fails for: five fields in one grant, and nothing ever again.",
                ),
                self.row(
                    false,
                    "recalls of mode-field leases on the file",
                    (1, fields.recalls, Bar::AtMost(1)),
                    "As in the paper: the creator's, by the first that opens the file.",
                ),
            ],
        }
    }

    fn controls(self, control: Leases) -> Vec<PaperRow> {
        match self {
            Experiment::FileField => vec![self.row(
                true,
                "one lease for each file: issued on the directory",
                (202, control.grants, Bar::MoreThan(100)),
                "A save here looks up five names beside changing three, so the lease is often taken to read and then once more to write; and the two clients \
                 take turns at every call, not at every save.",
            )],
            Experiment::Disjunctive => {
                let why = "Each iteration opens for reading, which changes who reads it and who has it open, and closes, which changes both back; others have asked for either in between. \
                           The two change hands in grants of their own, and a client may be recalled between its open and its close; the paper's were recalled about once for each iteration.";
                let (grants, recalls) = (control.grants, control.recalls);
                vec![
                    self.row(
                        true,
                        "one writer or many readers: grants",
                        (1237, grants, Bar::MoreThan(1200)),
                        why,
                    ),
                    self.row(
                        true,
                        "one writer or many readers: recalls",
                        (1203, recalls, Bar::MoreThan(1200)),
                        why,
                    ),
                ]
            }
        }
    }

    fn row(
        self,
        control: bool,
        counted: impl Into<String>,
        (paper, measured, bar): (u64, u64, Bar),
        why: &'static str,
    ) -> PaperRow {
        let (bar, met) = (bar.text(), bar.is_met_by(measured));
        PaperRow { experiment: self.name(), control, counted: counted.into(), paper, measured, bar, met, why }
    }
}

/// The rows as text.
pub fn text(rows: &[PaperRow]) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{:<12} {:<62} {:>8} {:>8}  bar", "", "", "paper", "measured");
    for row in rows {
        let counted = if row.control { format!("  control: {}", row.counted) } else { row.counted.clone() };
        let bar = match (row.bar.as_str(), row.met) {
            ("", _) => String::new(),
            (bar, true) => format!("met: {bar}"),
            (bar, false) => format!("MISSED: {bar}"),
        };
        let _ =
            writeln!(out, "{:<12} {counted:<62} {:>8} {:>8}  {bar}", row.experiment, row.paper, row.measured);
    }
    out.push('\n');
    let mut told: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.paper != row.measured) {
        if !row.why.is_empty() && !told.contains(&row.why) {
            let _ = writeln!(out, "{}, {}: {}", row.experiment, row.beside_the_papers(), row.why);
            told.push(row.why);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_met_or_missed() {
        for (bar, figure, met) in [
            (Bar::AtMost(6), 6, true),
            (Bar::AtMost(6), 7, false),
            (Bar::MoreThan(100), 101, true),
            (Bar::MoreThan(100), 100, false),
        ] {
            assert_eq!(bar.is_met_by(figure), met, "{figure} {}", bar.text());
        }
    }

    #[test]
    fn a_figure_that_the_paper_does_not_have_is_not_compared() {
        let row =
            |paper, measured| Experiment::FileField.row(false, "", (paper, measured, Bar::AtMost(9)), "");
        assert_eq!(row(6, 7).beside_the_papers(), "7, not 6");
        assert_eq!(row(0, 7).beside_the_papers(), "7");
    }

    #[test]
    fn every_figure_is_printed() {
        let leases = |fields| Leases { fields, grants: fields, recalls: 1, shipped: 0 };
        let (edited, opened) = (Experiment::FileField, Experiment::Disjunctive);
        let rows = [
            edited.rows(leases(7)),
            edited.controls(leases(202)),
            opened.rows(leases(12)),
            opened.controls(leases(1300)),
        ]
        .concat();
        let text = text(&rows);
        assert_eq!(text.matches("MISSED").count(), 2, "{text}");
        assert!(text.contains("file-field, 7, not 6: "), "{text}");
        assert!(!text.contains("file-field, 202"), "{text}");
        assert!(
            rows.iter()
                .filter(|row| row.control)
                .all(|row| row.met == (row.measured > 100 && !row.counted.contains("recalls")))
        );
    }
}
