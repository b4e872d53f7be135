//! The parts of the paper's evaluation that `leasehold bench paper` runs, each a section of the
//! report. A new one goes into [`EvaluationPart`], and has its title and its text in `sections`.

use super::report::Section;
use super::{Experiment, PaperRow, gremlins, renames, scaling, sections, sharing, snapshot};
use sim::Violation;
use sim::snapshot::DirectoryTree;

/// A part of the evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvaluationPart {
    /// An experiment of one server.
    Experiment(Experiment),
    /// The metadata of a department's file server (Farsite §8.2.1, §8.3.1). It takes minutes.
    Snapshot,
    /// Renames over six servers (Farsite §8.2.2, §8.3.2).
    Renames,
    /// Saves and reads as more machines share a directory (Farsite §9.1).
    Sharing,
    /// The gremlins (Farsite §8.2.6, §8.3.3, §8.3.5, §8.3.7). They take minutes.
    Gremlins,
    /// The gremlins on ever more machines and servers (Farsite §8.3.6). They take minutes.
    Scaling,
}

/// How a part is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The seed of everything.
    pub seed: u64,
    /// Simulated minutes of the gremlins.
    pub minutes: u64,
    /// Simulated minutes of each size in `scaling`.
    pub scaling_minutes: u64,
    /// The tree whose metadata `snapshot` copies.
    pub tree: SnapshotTree,
}

/// A directory tree to copy the metadata of.
#[derive(Clone, Debug)]
pub enum SnapshotTree {
    /// A generated department's file server of about the paper's size.
    Department,
    /// This one.
    Given(DirectoryTree),
}

impl EvaluationPart {
    /// All parts, in the order in which they run.
    pub const ALL: [EvaluationPart; Experiment::ALL.len() + 5] = {
        let mut all = [EvaluationPart::Scaling; Experiment::ALL.len() + 5];
        let mut at = 0;
        while at < Experiment::ALL.len() {
            all[at] = EvaluationPart::Experiment(Experiment::ALL[at]);
            at += 1;
        }
        all[at] = EvaluationPart::Snapshot;
        all[at + 1] = EvaluationPart::Renames;
        all[at + 2] = EvaluationPart::Sharing;
        all[at + 3] = EvaluationPart::Gremlins;
        all
    };

    /// The part's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            EvaluationPart::Experiment(experiment) => experiment.name(),
            EvaluationPart::Snapshot => snapshot::NAME,
            EvaluationPart::Renames => renames::NAME,
            EvaluationPart::Sharing => sharing::NAME,
            EvaluationPart::Gremlins => gremlins::NAME,
            EvaluationPart::Scaling => scaling::NAME,
        }
    }

    /// Whether the part runs although it is not asked for by name.
    pub fn is_short(self) -> bool {
        matches!(self, EvaluationPart::Experiment(_) | EvaluationPart::Renames)
    }

    /// Runs the part in simulation. Fails with a description if an operation had a wrong result.
    pub fn run(self, settings: &Settings) -> Result<Section, Violation> {
        let Settings { seed, minutes, scaling_minutes, ref tree } = *settings;
        match self {
            EvaluationPart::Experiment(experiment) => {
                sections::section(experiment, seed, experiment.run(seed)?)
            }
            EvaluationPart::Snapshot => snapshot::section(seed, tree),
            EvaluationPart::Renames => renames::section(seed),
            EvaluationPart::Sharing => sharing::section(seed),
            EvaluationPart::Gremlins => gremlins::section(seed, minutes),
            EvaluationPart::Scaling => scaling::section(seed, scaling_minutes),
        }
    }

    /// Runs the part on machines that are processes, as far as it can be.
    pub fn run_on_processes(self, seed: u64) -> Result<Vec<PaperRow>, Violation> {
        match self {
            EvaluationPart::Experiment(experiment) => experiment.run_on_processes(seed),
            EvaluationPart::Snapshot
            | EvaluationPart::Renames
            | EvaluationPart::Sharing
            | EvaluationPart::Gremlins
            | EvaluationPart::Scaling => Ok(Vec::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::{self, Circumstances};
    use super::*;

    /// The short form of the whole evaluation: every part runs, has figures, and is in the report.
    #[test]
    fn every_part_has_its_place_in_the_report() {
        let mut tree = DirectoryTree::new();
        let below = tree.add_directory(0);
        (0..40).for_each(|_| tree.add_file(below));
        let settings = Settings { seed: 1, minutes: 2, scaling_minutes: 1, tree: SnapshotTree::Given(tree) };
        let long = ["scaling", "sharing"];
        let short = |part: &EvaluationPart| !long.contains(&part.name());
        let parts = EvaluationPart::ALL.into_iter().filter(short);
        let sections: Vec<Section> = parts.map(|part| part.run(&settings).unwrap()).collect();
        let dir = tempfile::tempdir().unwrap();
        let run = Circumstances { command: "a test", seed: 1, date: "2026-11-28" };
        report::write(dir.path(), run, &sections).unwrap();
        let text = std::fs::read_to_string(dir.path().join("report.md")).unwrap();
        for section in &sections {
            assert!(!section.rows.is_empty() && text.contains(section.title), "{}: {text}", section.title);
        }
        for picture in ["common-directory-editing.svg", "identifiers.svg", "figure-4.svg", "figure-5.svg"] {
            assert!(dir.path().join(picture).exists() && text.contains(picture), "{picture}: {text}");
        }
    }
}
