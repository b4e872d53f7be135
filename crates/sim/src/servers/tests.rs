use super::*;

#[test]
#[ignore = "a tool"]
fn one_of_servers() {
    let number = |name: &str, or: u64| std::env::var(name).map_or(or, |it| it.parse().unwrap());
    let lie = (number("LIE", 0) > 0).then_some(Lie::KeptBelow);
    let tally = run_servers_in(
        (number("AT_ONCE", 1) > 0, lie),
        number("SEED", 1),
        number("SERVERS", 3) as u16,
        number("MACHINES", 2),
        number("CALLS", 300),
    );
    println!("{:?}", tally.unwrap_or_else(|violation| panic!("{violation}")));
}

#[test]
fn wherever_its_files_are_a_call_answers_as_on_one_server() {
    let mut all = ServersTally::default();
    for seed in 0..50 {
        all += run_servers(seed, 2 + (seed % 3) as u16, 1 + seed % 3, 200)
            .unwrap_or_else(|violation| panic!("{violation}"));
    }
    println!("{all:?}");
    // Runs without events prove nothing.
    assert!(all.moved_dirs > 25 && all.path_leases > 200, "{all:?}");
    assert!(all.moves > 200 && all.lost > 200 && all.breaks > 200 && all.restarts > 100, "{all:?}");
}

/// Machines call at the same time, often about the same names.
#[test]
fn calls_that_run_at_once_answer_as_one_after_the_other() {
    let mut all = ServersTally::default();
    for seed in 0..40 {
        all += run_servers_in((true, None), seed, 2 + (seed % 3) as u16, 2 + seed % 3, 120)
            .unwrap_or_else(|violation| panic!("{violation}"));
    }
    println!("{all:?}");
    // Runs without events prove nothing.
    assert!(all.together > 600 && all.ambiguous > 20 && all.kept > 1_000, "{all:?}");
    assert!(all.moves > 100 && all.joint > 100, "{all:?}");
}

#[test]
fn a_kernel_that_keeps_what_is_revoked_is_found() {
    let found =
        (0..40).filter(|seed| run_servers_in((false, Some(Lie::KeptBelow)), *seed, 2, 3, 100).is_err());
    assert!(found.count() > 10);
}
