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
/// To look at what a seed does: `SEED=7 MACHINES=20 CALLS=3000 cargo test -p sim one_seed -- --ignored --nocapture`, with `TO` for the end of a range of them, and
/// `ALOUD` to have everything printed.
#[test]
#[ignore = "a tool"]
fn one_seed() {
    let of = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
    };
    let seed = of("SEED", 0);
    let mut failed = 0;
    for seed in seed..of("TO", seed + 1) {
        let weather = Weather { aloud: of("ALOUD", 0) > 0, ..Weather::of(seed) };
        match run_building_in(weather, seed, of("MACHINES", 20), of("CALLS", 3_000)) {
            Ok(happened) => println!("{seed}: {happened:?}"),
            Err(violation) => {
                println!("{seed}: VIOLATION {violation}");
                failed += 1;
            }
        }
    }
    assert_eq!(failed, 0);
}
