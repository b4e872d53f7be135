//! The sections of the report: each experiment as it was run here, its figures and its plots.

use super::plot::{Line, Plot};
use super::report::Section;
use super::{Experiment, PaperRow};
use lease::Granularity;
use sim::Violation;
use sim::paper::{self, EDITORS};

/// The saves of each editor in the plot of leases over saves.
const SAVES: [u64; 6] = [5, 10, 20, 30, 40, 50];

/// The section of an experiment whose figures are `rows`.
pub fn section(experiment: Experiment, seed: u64, rows: Vec<PaperRow>) -> Result<Section, Violation> {
    let (title, place, how) = about(experiment);
    let plots = if experiment == Experiment::FileField { vec![leases_over_saves(seed)?] } else { Vec::new() };
    Ok(Section { title, place, how: how.to_owned(), rows, plots, notes: Vec::new() })
}

/// The title of an experiment, its place in the paper, and how it is run here.
fn about(experiment: Experiment) -> (&'static str, &'static str, &'static str) {
    match experiment.name() {
        "file-field" => (
            "Common-directory editing",
            "Farsite §8.2.3, §8.3.3",
            "Two clients save two files of one directory fifty times each, as GNU Emacs does. One server;\n\
             the seed says whose turn it is. Every answer is compared with the one that is due. The control\n\
             has one lease for each file.",
        ),
        "disjunctive" => (
            "Common-file opening",
            "Farsite §8.2.4, §8.3.4",
            "One client makes a file and has it open, so that nobody else may write. Twelve others open it a\n\
             hundred times each, first so that nobody else may write, which is refused, and then to read. The\n\
             control has one writer or many readers of a file's modes.",
        ),
        name => (name, "Farsite §8", ""),
    }
}

/// The leases that editing a common directory takes, as the saves grow.
fn leases_over_saves(seed: u64) -> Result<Plot, Violation> {
    let line = |name: &str, granularity, of: fn(paper::Leases) -> u64| {
        let count = |saves: u64| {
            let leases = paper::simulated(seed, EDITORS, granularity, |office| paper::edit(office, saves))?;
            Ok(((2 * saves) as f64, of(leases) as f64))
        };
        let points = SAVES.into_iter().map(count).collect::<Result<_, Violation>>()?;
        Ok::<_, Violation>(Line { name: name.to_owned(), points })
    };
    Ok(Plot {
        name: "common-directory-editing",
        title: "Leases on the directory, as saves grow",
        x: "saves",
        y: "leases issued",
        lines: vec![
            line("a lease for each name", Granularity::Fields, |leases| leases.fields)?,
            line("control: a lease for each file", Granularity::Files, |leases| leases.grants)?,
        ],
    })
}
