//! Work on names in a directory that no other machine uses. Leases are to make the network
//! irrelevant.

use super::processor::OneProcessor;
use super::row::SharedRow;
use super::settings::Settings;
use super::testbed::Testbed;
use crate::names::{Layout, NameWork};
use crate::target::{Target, TargetKind};
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// The least ratio to a machine that has the server itself.
pub(super) const LEAST: f64 = 0.9;
/// Times that repeatable work is done in a round. Once takes so little that any other process on
/// the machine shows.
const LOOKS: usize = 5;

/// Compares one machine alone with one whose server is `delay` away, in turns. All run on one
/// processor, so the server's part of the work counts on either side.
pub(super) fn run(
    base: &Path,
    delay: Duration,
    settings: &Settings,
    tell: &mut dyn FnMut(&str),
) -> io::Result<Vec<SharedRow>> {
    let way = match delay.as_millis() {
        0 => "private".to_owned(),
        ms => format!("private, {ms} ms away"),
    };
    let _one = OneProcessor::take()?;
    let alone = Target::start(TargetKind::Mount, &base.join("alone"))?;
    let testbed = Testbed::start(&base.join("office"), 1, delay)?;
    let targets: Vec<&Target> = testbed.machines().iter().chain([&alone]).collect();
    let rows = compare(&way, &targets, settings, tell)?;
    Ok(rows.into_iter().map(|row| row.ratio_bar(LEAST)).collect())
}

/// Compares the first of two targets with the second: work on names in one directory, in turns.
pub(super) fn compare(
    way: &str,
    targets: &[&Target],
    settings: &Settings,
    tell: &mut dyn FnMut(&str),
) -> io::Result<Vec<SharedRow>> {
    Comparison { way, dirs: 1, prepare: &|_, _| Ok(()) }.run(targets, settings, tell)
}

/// A comparison of two targets by work on names.
pub(super) struct Comparison<'a> {
    /// The name of the first target's way.
    pub way: &'a str,
    /// Directories that the files are spread over.
    pub dirs: usize,
    /// Prepares new directories of a target, below this one.
    pub prepare: &'a dyn Fn(&Target, &Path) -> io::Result<()>,
}

impl Comparison<'_> {
    /// Compares the first of two targets with the second, in turns.
    pub(super) fn run(
        &self,
        targets: &[&Target],
        settings: &Settings,
        tell: &mut dyn FnMut(&str),
    ) -> io::Result<Vec<SharedRow>> {
        let Comparison { way, dirs, prepare } = *self;
        let layout = Layout { threads: 1, dirs, files: settings.files, mkdirs: settings.files };
        // For each work and target, the rate of each round.
        let mut rates = vec![vec![Vec::new(); targets.len()]; NameWork::ALL.len()];
        for round in 0..settings.rounds {
            for (w, work) in NameWork::ALL.into_iter().enumerate() {
                tell(&format!("{way}: {}, round {}", work.name(), round + 1));
                let times = if work.is_repeatable() { LOOKS } else { 1 };
                let mut took = vec![Duration::ZERO; targets.len()];
                for turn in 0..times * targets.len() {
                    // The first target finds the colder machine, so they take turns to be first.
                    let t = (turn + turn / targets.len() + round + w) % targets.len();
                    let root = targets[t].dir().join(format!("round-{round}"));
                    if !root.exists() {
                        layout.prepare(&root)?;
                        prepare(targets[t], &root)?;
                    }
                    let began = Instant::now();
                    work.run(&root, layout)?;
                    took[t] += began.elapsed();
                    if work.updates() {
                        targets[t].sync()?;
                    }
                }
                for (rates, took) in rates[w].iter_mut().zip(took) {
                    rates.push((times as u64 * work.operations(layout)) as f64 / took.as_secs_f64());
                }
            }
        }
        let rows = NameWork::ALL.into_iter().zip(rates).map(|(work, rates)| {
            let (there, alone) = (&rates[0], &rates[1]);
            // Of each round, since the machine's pace changes from one round to the next.
            let ratios: Vec<f64> = there.iter().zip(alone).map(|(there, alone)| there / alone).collect();
            let mut row =
                SharedRow::of(format!("{way}: {}", work.name()), median(there)).beside(median(alone));
            row.ratio = Some(median(&ratios));
            row
        });
        Ok(rows.collect())
    }
}

/// The median: other work on this machine disturbs it least.
fn median(rates: &[f64]) -> f64 {
    let mut rates = rates.to_vec();
    rates.sort_unstable_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(0.0)
}
