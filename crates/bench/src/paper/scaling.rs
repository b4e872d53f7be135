//! Throughput as machines and servers grow (Farsite §8.3.6).

use super::PaperRow;
use super::plot::{Line, Plot};
use super::report::Section;
use sim::Violation;
use sim::gremlins::{GremlinsOutcome, Run, run};

/// The part's name on the command line.
pub(super) const NAME: &str = "scaling";
/// Machines and servers of a run.
const SIZES: [u16; 8] = [1, 2, 3, 5, 8, 10, 15, 20];
/// Machines beside which the servers grow.
const MACHINES: usize = 15;
/// The time of a server's disk for each flush of its log, µs.
const DISK_US: u64 = 100_000;

/// The section of the report.
pub(super) fn section(seed: u64, minutes: u64) -> Result<Section, Violation> {
    let basis = Run { disk_us: DISK_US, ..Run::basis(seed, 60 * minutes) };
    let of = |machines: usize, servers: u16| {
        Ok::<_, Violation>((servers, run(Run { machines, servers, ..basis })?))
    };
    let equal =
        SIZES.into_iter().map(|size| of(usize::from(size), size)).collect::<Result<Vec<_>, Violation>>()?;
    let fixed = SIZES.into_iter().map(|size| of(MACHINES, size)).collect::<Result<Vec<_>, Violation>>()?;
    let how = format!(
        "The gremlins for {minutes} simulated minutes each, on N machines and N servers, and on {MACHINES} machines and N\n\
         servers. A server's disk takes {} ms for each flush of its log, one after the other: a stated\n\
         parameter, as the paper throttles the disks of its servers. Messages that rest on the log wait\n\
         for that: grants, results, and those of servers to each other. Recalls, renewals and answers that\n\
         tell of lasting rows do not. Throughput is calls of a machine from the beginning on, when the root\n\
         server has everything, in % of those with {MACHINES} machines and {MACHINES} servers.",
        DISK_US / 1_000
    );
    Ok(Section {
        title: "Proportional scaling",
        place: "Farsite §8.3.6",
        how,
        rows: rows(&equal, &fixed),
        plots: vec![
            plot("figure-6", "Figure 6: throughput of a machine, N machines and N servers", &equal),
            plot("figure-7", "Figure 7: throughput of a machine, 15 machines and N servers", &fixed),
        ],
        notes: vec![
            "The paper's servers have little more disk than one machine needs, so theirs are the bottleneck in figure 7 \
             where there are few. One machine needs a small part of a disk here: what its leases cover costs no \
             flush, and updates leave in batches. The most used disk is that of the three documents, which machines \
             change in turn."
                .to_owned(),
        ],
    })
}

/// The mean and the median calls of a machine.
fn calls(outcome: &GremlinsOutcome) -> (f64, f64) {
    let mut all = outcome.counts.by_machine.clone();
    all.sort_unstable();
    let mean = all.iter().sum::<u64>() as f64 / all.len().max(1) as f64;
    (mean, all.get(all.len() / 2).copied().unwrap_or_default() as f64)
}

/// The share of time for which the most used disk of a server is in use, %.
fn use_of_disk(outcome: &GremlinsOutcome) -> f64 {
    let most = outcome.counts.disk_us.iter().max().copied().unwrap_or_default();
    most as f64 / 1e4 / outcome.secs.max(1) as f64
}

/// By servers, the mean and the median throughput of a machine, % of those in the run with as many
/// servers as the basis has.
fn relative(runs: &[(u16, GremlinsOutcome)]) -> Vec<(u16, f64, f64)> {
    let basis = runs.iter().find(|(servers, _)| usize::from(*servers) == MACHINES);
    let (mean, median) = basis.map_or((1.0, 1.0), |(_, outcome)| calls(outcome));
    let of = |(servers, outcome): &(u16, GremlinsOutcome)| {
        let its = calls(outcome);
        (*servers, 100.0 * its.0 / mean, 100.0 * its.1 / median)
    };
    runs.iter().map(of).collect()
}

fn plot(name: &'static str, title: &'static str, runs: &[(u16, GremlinsOutcome)]) -> Plot {
    let all = relative(runs);
    let line = |name: &str, of: fn(&(u16, f64, f64)) -> f64| Line {
        name: name.to_owned(),
        points: all.iter().map(|one| (f64::from(one.0), of(one))).collect(),
    };
    let lines = vec![line("mean", |one| one.1), line("median", |one| one.2)];
    Plot { name, title, x: "servers", y: "% of the basis", lines }
}

fn rows(equal: &[(u16, GremlinsOutcome)], fixed: &[(u16, GremlinsOutcome)]) -> Vec<PaperRow> {
    let row = |counted: String, measured: f64, bar: &str, met| PaperRow {
        experiment: NAME,
        control: false,
        counted,
        paper: 100,
        measured: measured.round() as u64,
        bar: bar.to_owned(),
        met,
        why: "The paper shows curves, without figures.",
    };
    let flat = relative(equal);
    let (least, most) =
        flat.iter().fold((f64::MAX, 0.0_f64), |(least, most), one| (least.min(one.1), most.max(one.1)));
    let mut rows = vec![
        row(
            "N machines and N servers: the least mean throughput, %".to_owned(),
            least,
            "at least 95",
            least >= 95.0,
        ),
        row("N machines and N servers: the greatest, %".to_owned(), most, "at most 105", most <= 105.0),
    ];
    for (size, outcome) in equal.iter().filter(|(size, _)| [1, MACHINES].contains(&usize::from(*size))) {
        let mut one = row(
            format!("{size} machines and servers: the greatest use of a disk, %"),
            use_of_disk(outcome),
            "",
            true,
        );
        (one.paper, one.why) = (0, "");
        rows.push(one);
    }
    for (servers, mean, _) in relative(fixed).into_iter().filter(|one| [1, 5, 20].contains(&one.0)) {
        let mut one =
            row(format!("{MACHINES} machines, servers: {servers}; mean throughput, %"), mean, "", true);
        one.why = "";
        rows.push(one);
    }
    rows
}
