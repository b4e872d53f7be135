//! The gremlins on fifteen machines and fifteen servers (Farsite §8.2.6, §8.3.3, §8.3.5, §8.3.7).

use super::PaperRow;
use super::plot::{Line, Plot};
use super::report::Section;
use sim::Violation;
use sim::gremlins::{Counts, Delegation, GremlinsOutcome, Run, Sample, run};

/// The part's name on the command line.
pub(super) const NAME: &str = "gremlins";
/// The share of the run after which servers have had time to share the load.
const WARM_UP: u64 = 3;
/// Samples of a window over which loads are compared: ten minutes.
const WINDOW: usize = 10;

/// The section of the report.
pub(super) fn section(seed: u64, minutes: u64) -> Result<Section, Violation> {
    let basis = Run::basis(seed, 60 * minutes);
    let full = run(basis)?;
    let once = run(Run { delegation: Delegation::Once, ..basis })?;
    let Run { machines, servers, service_us, .. } = basis;
    let how = format!(
        "{machines} machines and {servers} servers for {minutes} simulated minutes (the paper: 4 hours). Each machine has \
         seven gremlins,\n\
         and one custodian renames directories near the root. Messages take 0.3 to 2 ms. A server takes\n\
         {service_us} µs for each message, one after the other (a stated parameter, which is not measured).\n\
         Each gremlin compares every answer with the one that is due: a wrong one ends the run, and none did.\n\
         The control hands each file over at most once. Load is the share of the active files, those asked\n\
         or told about within five minutes."
    );
    Ok(Section {
        title: "Gremlins",
        place: "Farsite §8.2.6, §8.3.3, §8.3.5, §8.3.7",
        how,
        rows: [rows(&full), loads(false, &full), loads(true, &once)].concat(),
        plots: vec![
            plot("figure-4", "Figure 4: server load over time, full delegation", &full.counts),
            plot("figure-5", "Figure 5: server load over time, each file delegated once", &once.counts),
        ],
        notes: vec![notes(&full.counts, "Full delegation"), notes(&once.counts, "The control")],
    })
}

fn row(control: bool, counted: &'static str, (paper, measured): (u64, u64), why: &'static str) -> PaperRow {
    let (counted, bar) = (counted.into(), String::new());
    PaperRow { experiment: NAME, control, counted, paper, measured, bar, met: true, why }
}

fn rows(outcome: &GremlinsOutcome) -> Vec<PaperRow> {
    let GremlinsOutcome { secs, counts } = outcome;
    let per_hour = |count: u64| (3_600 * count).checked_div(*secs).unwrap_or_default();
    let percent = |part: u64, of: u64| (100 * part).checked_div(of).unwrap_or_default();
    vec![
        row(
            false,
            "operations each second",
            (390, counts.operations / secs.max(&1)),
            "The gremlins' pauses are ours; the paper gives their means in part. An operation is a call of a program.",
        ),
        row(
            false,
            "requests for leases each hour",
            (12_960, per_hour(counts.requests)),
            "A first grant of a directory has everything in it, and its creator holds a new file without asking.",
        ),
        row(
            false,
            "leases granted each hour",
            (29_880, per_hour(counts.leases)),
            "A grant of a whole file is one lease here, and each field of others is one.",
        ),
        row(
            false,
            "batches of updates each hour",
            (2_880, per_hour(counts.batches)),
            "Updates leave a machine within 4.5 s, since all that is older must survive a crash of the machine; a batch \
             goes to each server that has files of it. The paper does not say how long its clients wait.",
        ),
        row(
            false,
            "operations over several servers in 4 hours",
            (8, 4 * per_hour(counts.joint)),
            "Scaled to four hours. The custodian's renames are few, and those over several servers depend on where \
             regions are; the paper's eight are of one run, too.",
        ),
        row(
            false,
            "leases without a recall that one lease for each file would have had recalled, %",
            (59, percent(counts.would_conflict, counts.leases)),
            "A creator's leases are not granted and so not counted, and a directory that nobody else uses is granted \
             whole. The leases that are left of shared files are fewer.",
        ),
    ]
}

/// How even the loads are after the warm-up.
fn loads(control: bool, outcome: &GremlinsOutcome) -> Vec<PaperRow> {
    let samples = warm(&outcome.counts.samples);
    let (least, most) = range(samples);
    let uneven = unevenness(samples, |sample| &sample.active);
    let why = "Servers exchange loads every ten seconds. One with more than one and a half times the load of another (the \
               paper: twice) hands over the heaviest subtree that leaves the other no more loaded. If none has about \
               the right load, the server hands a heavier one over, and takes a lighter one for that.";
    let mut rows = vec![
        row(control, "the least load of a server at any time, %", (3, least), if control { "" } else { why }),
        row(
            control,
            "the greatest load of a server at any time, %",
            (14, most),
            if control { "" } else { why },
        ),
    ];
    if control {
        rows.iter_mut().for_each(|row| row.paper = 0);
    } else {
        rows.push(PaperRow {
            bar: "at most 150".to_owned(),
            met: uneven <= 150,
            ..row(control, "the greatest load over ten minutes, % of the mean", (210, uneven), why)
        });
        rows.push(row(
            control,
            "the greatest number of messages over ten minutes, % of the mean",
            (0, unevenness(samples, |sample| &sample.handled)),
            "Load is the count of active files, as in the paper, and a file with many messages counts once. The three \
             documents, which machines change in turn, have the most.",
        ));
    }
    rows
}

/// The samples after the warm-up.
fn warm(samples: &[Sample]) -> &[Sample] {
    samples.get(samples.len() / WARM_UP as usize..).unwrap_or_default()
}

/// The shares of a server's load in a sample, %.
fn shares(sample: &Sample) -> impl Iterator<Item = f64> {
    let all = sample.active.iter().sum::<u64>().max(1) as f64;
    sample.active.iter().map(move |active| 100.0 * *active as f64 / all)
}

fn range(samples: &[Sample]) -> (u64, u64) {
    let all = || samples.iter().flat_map(shares);
    (all().fold(100.0, f64::min).round() as u64, all().fold(0.0, f64::max).round() as u64)
}

/// The greatest load of a server over any ten minutes, % of the mean load of all servers.
fn unevenness(samples: &[Sample], load: fn(&Sample) -> &Vec<u64>) -> u64 {
    let window = WINDOW.min(samples.len().max(1));
    let of = |window: &[Sample]| {
        let servers = window.first().map_or(0, |sample| load(sample).len());
        let sum = |at: usize| window.iter().filter_map(|sample| load(sample).get(at)).sum::<u64>();
        let all = (0..servers).map(sum).sum::<u64>().max(1);
        (0..servers).map(|at| 100 * sum(at) * servers as u64 / all).max().unwrap_or_default()
    };
    samples.windows(window).map(of).max().unwrap_or_default()
}

fn plot(name: &'static str, title: &'static str, counts: &Counts) -> Plot {
    let servers = counts.samples.first().map_or(0, |sample| sample.active.len());
    let line = |at: usize| {
        let point = |sample: &Sample| (sample.at_s as f64 / 60.0, shares(sample).nth(at).unwrap_or_default());
        let name = if at == 0 { "the root's server".to_owned() } else { String::new() };
        Line { name, points: counts.samples.iter().map(point).collect() }
    };
    Plot {
        name,
        title,
        x: "minutes",
        y: "% of all active files",
        lines: (0..servers).rev().map(line).collect(),
    }
}

fn notes(counts: &Counts, which: &str) -> String {
    let Counts { operations, waited, shipped, recalls, delegations, stayed, joint, longest_us, .. } = counts;
    let Counts { path_messages, joint_messages, hand_over_messages, .. } = counts;
    format!(
        "{which}: {operations} operations, of which {waited} waited for a server; {shipped} were done by a server; {recalls} \
         recalls; {delegations} regions handed over and {stayed} that stayed, being in use; {joint} operations over \
         several servers. Messages between servers: {path_messages} about path leases, {joint_messages} about operations \
         over several servers, {hand_over_messages} about regions. No message was handled later than {:.1} ms after it arrived.",
        *longest_us as f64 / 1e3
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn active(sample: &Sample) -> &Vec<u64> {
        &sample.active
    }

    #[test]
    fn loads_are_compared_over_any_ten_minutes() {
        let sample = |active: [u64; 2]| Sample { at_s: 0, active: active.to_vec(), handled: Vec::new() };
        let even: Vec<Sample> = (0..30).map(|_| sample([5, 5])).collect();
        assert_eq!((range(&even), unevenness(&even, active)), ((50, 50), 100));
        let mut uneven = even;
        uneven.iter_mut().skip(12).take(10).for_each(|it| it.active = vec![9, 1]);
        assert_eq!((range(&uneven), unevenness(&uneven, active)), ((10, 90), 180));
        assert_eq!(unevenness(&uneven[..3], active), 100, "a short run is one window");
        assert_eq!(unevenness(&[], active), 0);
    }
}
