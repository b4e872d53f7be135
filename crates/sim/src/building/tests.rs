//! Machines in all weathers.

use super::{Happened, Weather, run_building, run_building_in};

/// What leaks time, order or chance from outside shows here first.
#[test]
fn equal_seeds_give_equal_runs() {
    for seed in 0..3 {
        assert_eq!(run_building(seed, 5, 300).unwrap(), run_building(seed, 5, 300).unwrap(), "seed {seed}");
    }
}

#[test]
fn in_fair_weather_nobody_is_cut_off_and_nothing_is_lost() {
    for seed in 0..5 {
        let happened = run_building_in(Weather::FAIR, seed, 5, 1_000).unwrap();
        let Happened { cut_off, fenced, lost, .. } = happened;
        assert_eq!((cut_off, fenced, lost), (0, 0, 0), "seed {seed}: {happened:?}");
    }
}
