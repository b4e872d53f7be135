//! Seeds of the workloads, and cases that one workload alone has.

mod hurry;
mod listing;
mod locks;
mod ping_pong;
mod rights;

use crate::{Tally, run, run_many, run_many_under};
use directory::Policy;
use lease::Granularity;

/// Time, order or chance that leaks in from outside shows here first.
#[test]
fn equal_runs_have_equal_traces() {
    for seed in 0..6 {
        assert_eq!(run(seed, 200).unwrap(), run(seed, 200).unwrap(), "seed {seed}");
    }
}

#[test]
fn the_contract_holds() {
    let (mut crashes, mut full) = (0, 0);
    for seed in 0..300 {
        let summary = run(seed, 300).unwrap_or_else(|failure| panic!("{failure}"));
        crashes += summary.crashes;
        full += summary.full;
    }
    // Runs without events prove nothing.
    assert!(crashes > 100, "only {crashes} crashes");
    assert!(full > 50, "only {full} calls found the disk full");
}

#[test]
#[ignore = "a tool"]
fn one_of_many() {
    let seed = std::env::var("SEED").unwrap().parse().unwrap();
    run_many(seed, 2 + seed % 2, 400).unwrap_or_else(|violation| panic!("{violation}"));
}

#[test]
fn what_anybody_has_open_stays_and_nothing_else_does() {
    let mut all = Tally::default();
    for seed in 0..3_000 {
        all += run_many(seed, 2 + seed % 2, 400).unwrap_or_else(|violation| panic!("{violation}"));
    }
    // Runs without events prove nothing.
    println!("{all:?}");
    assert!(all.conflicts > 500 && all.doomed > 500 && all.too_late > 100, "{all:?}");
    assert!(all.ends > 250 && all.restarts > 500 && all.nameless > 200 && all.told_open > 500, "{all:?}");
}

/// Coarser leases, which the benchmarks compare with, make a correct file system, too: every
/// call is answered, and correctly.
#[test]
fn coarser_leases_promise_the_same() {
    for granularity in [Granularity::SingleWriter, Granularity::Files] {
        let policy = Policy { granularity, ..Policy::default() };
        let mut all = Tally::default();
        for seed in 0..1_000 {
            all += run_many_under(policy, seed, 2 + seed % 2, 400)
                .unwrap_or_else(|violation| panic!("{granularity:?}: {violation}"));
        }
        assert!(all.ends > 80 && all.restarts > 150, "{granularity:?}: {all:?}");
        assert!(all.nameless > 60 && all.told_open > 150, "{granularity:?}: {all:?}");
        assert!(all.conflicts > 150 && all.doomed > 150, "{granularity:?}: {all:?}");
    }
}
