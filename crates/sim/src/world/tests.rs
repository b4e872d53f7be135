//! Machines in all weathers.

use super::log::RaftEntry;
use super::state::members::Members;
use super::{Stats, Weather, World, run_world, run_world_in};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Time, order or chance that leaks in from outside shows here first.
#[test]
fn equal_seeds_give_equal_runs() {
    for seed in 0..3 {
        assert_eq!(run_world(seed, 5, 300).unwrap(), run_world(seed, 5, 300).unwrap(), "seed {seed}");
    }
    let split = || run_world_in(SPLIT, 0, 5, 300).unwrap();
    assert_eq!(split(), split());
}

#[test]
fn in_fair_weather_nobody_is_cut_off_and_nothing_is_lost() {
    for seed in 0..5 {
        let happened = run_world_in(Weather::FAIR, seed, 5, 1_000).unwrap();
        let Stats { cut_off, fenced, lost, .. } = happened;
        assert_eq!((cut_off, fenced, lost), (0, 0, 0), "seed {seed}: {happened:?}");
    }
    let happened = all_of(Weather { servers: 3, ..Weather::FAIR }, 0..3, 5, 1_000);
    let Stats { cut_off, fenced, lost, elections, vanished, .. } = happened;
    assert_eq!((cut_off, fenced, lost, elections, vanished), (0, 0, 0, 3, 0), "{happened:?}");
}
/// Runs one seed:
/// `SEED=7 MACHINES=20 CALLS=3000 cargo test -p sim one_seed -- --ignored --nocapture`. `TO` is the
/// end of a range of seeds, `SERVERS` the number of servers, and `ALOUD` prints everything.
/// `WEATHER` takes one of the weathers that follow: `slow`, `breaking`, `split`, `away`, `moving`,
/// `limited`, `policies`, `rotting`, `changing`, `full`, `directories`, `passing`, `ending` or
/// `dying`.
#[test]
#[ignore = "a tool"]
fn one_seed() {
    let of = |name: &str, default: u64| {
        std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
    };
    let seed = of("SEED", 0);
    let mut failed = 0;
    for seed in seed..of("TO", seed + 1) {
        let weather = match std::env::var("WEATHER").as_deref() {
            Ok("slow") => SLOW,
            Ok("breaking") => BREAKING,
            Ok("split") => SPLIT,
            Ok("away") => AWAY,
            Ok("moving") => MOVING,
            Ok("limited") => LIMITED,
            Ok("policies") => POLICIES,
            Ok("rotting") => ROTTING,
            Ok("shipped") => Weather::shipped(seed),
            Ok("changing") => CHANGING,
            Ok("full") => FULL,
            Ok("directories") => DIRECTORIES,
            Ok("ping-pong") => PING_PONG,
            Ok("ending") => ENDING,
            Ok("dying") => DYING,
            Ok("replacing") => REPLACING,
            Ok("fair") => Weather { replaces: 1, ..Weather::FAIR },
            _ => Weather::of(seed),
        };
        let (aloud, servers) = (of("ALOUD", 0) > 0, of("SERVERS", weather.servers));
        let weather = Weather { aloud, servers, ..weather };
        match run_world_in(weather, seed, of("MACHINES", 20), of("CALLS", 3_000)) {
            Ok(happened) => println!("{seed}: {happened:?}"),
            Err(violation) => {
                println!("{seed}: VIOLATION {violation}");
                failed += 1;
            }
        }
    }
    assert_eq!(failed, 0);
}

/// The violation by which one of these seeds finds a mutation.
fn is_found(weather: Weather, seeds: std::ops::Range<u64>, machines: u64, calls: u64) -> Option<String> {
    seeds.into_iter().find_map(|seed| run_world_in(weather, seed, machines, calls).err())
}

/// Answers take long, and machines are cut off while they do.
const SLOW: Weather = Weather {
    calm_ms: 2_000,
    breaks: 1,
    slows: 12,
    slow_ms: 2_400,
    partitions: 4,
    crashes: 0,
    ends: 0,
    restarts: 0,
    drift_ppm: 0,
    ..Weather::FOUL
};

/// A term that begins when the client receives the renewal ends after the server's. By then other
/// machines may have leases that the client still believes to hold.
#[test]
fn a_client_that_counts_its_term_from_the_receipt_is_found() {
    let lie = Some(super::Mutation::TermFromReceipt);
    let found = is_found(Weather { lie, ..SLOW }, 0..40, 8, 2_000);
    println!("{found:?}");
    assert!(found.is_some());
}

/// Directories are moved, and machines receive late the results of operations that the server has
/// done for them.
const DIRECTORIES: Weather = Weather { moves: 8, ..SLOW };

/// A kernel's answer is true until it is invalidated. This holds also while the server does
/// something for its machine that others know of already.
#[test]
fn a_kernel_is_never_behind_what_the_server_does_for_its_machine() {
    let mut all = all_of(DIRECTORIES, 0..16, 6, 2_000);
    all += all_of(DIRECTORIES, 16..24, 3, 2_000);
    println!("{all:?}");
    assert!(all.kept > 2_000, "{all:?}");
    let lie = Some(super::Mutation::KeptBelow);
    let found = is_found(Weather { lie, ..DIRECTORIES }, 0..16, 6, 2_000);
    println!("{found:?}");
    assert!(found.is_some());
}

/// A lease is on all names that fold to one, and a kernel knows each name by itself.
#[test]
fn a_kernel_that_keeps_other_names_than_the_folded_one_is_found() {
    let lie = Some(super::Mutation::FoldedBelow);
    let found = is_found(Weather { lie, ..DIRECTORIES }, 0..16, 6, 2_000);
    println!("{found:?}");
    assert!(found.is_some());
}

/// Programs keep directories locked in their kernels while they wait, and an invalidation there
/// needs the lock.
#[test]
fn whoever_keeps_a_directory_locked_gives_way() {
    let all = all_of(DIRECTORIES, 0..8, 6, 2_000);
    println!("{all:?}");
    assert!(all.gave_way > 20, "{all:?}");
}

/// Files are replaced by rename all the time, and looked up by name.
const REPLACING: Weather = Weather { replaces: 1, restarts: 0, crashes: 0, ..Weather::FOUL };

/// A kernel makes two requests for a call on a path. The file that the first has found is good for
/// the second, whichever machine replaces it meanwhile. No call waits for long because of that.
#[test]
fn a_name_that_always_exists_can_always_be_used() {
    let fair = Weather { replaces: 1, ..Weather::FAIR };
    let mut all = all_of(fair, 0..6, 2, 1_500);
    all += all_of(fair, 6..10, 6, 3_000);
    println!("{all:?}");
    let all = all_of(REPLACING, 0..12, 4, 2_000);
    println!("{all:?}");
    let lie = Some(super::Mutation::NothingBelow);
    for weather in [fair, REPLACING] {
        let found = is_found(Weather { lie, ..weather }, 0..6, 4, 2_000);
        println!("{found:?}");
        assert!(found.is_some());
    }
}

/// A small file ping-pongs between one machine and the others all the time, while much goes wrong.
const PING_PONG: Weather = Weather { passes: 16, calm_ms: 8_000, ..Weather::FOUL };

/// A change in write-through counts once the server has applied it, and no sooner: not even on the
/// machine that wrote it.
#[test]
fn what_is_written_through_is_seen_by_all_or_by_nobody() {
    let mut all = all_of(PING_PONG, 0..16, 3, 1_500);
    all += all_of(Weather { servers: 3, ..PING_PONG }, 16..28, 3, 1_500);
    println!("{all:?}");
    assert!(all.heard > 300, "{all:?}");
    let lie = Some(super::Mutation::HeardEarly);
    let found = is_found(Weather { lie, ..PING_PONG }, 0..8, 3, 1_500);
    println!("{found:?}");
    assert!(found.is_some());
}

/// Connections break all the time while answers are under way, and no machine is cut off for it.
const BREAKING: Weather = Weather {
    calm_ms: 300,
    breaks: 12,
    slows: 12,
    one_way: 0,
    partitions: 0,
    freezes: 0,
    crashes: 0,
    ends: 0,
    restarts: 0,
    ..Weather::FOUL
};

/// Over the next connection a client asks again for each operation that it does not know to be
/// done.
#[test]
fn a_server_that_does_not_remember_what_it_did_is_found() {
    let lie = Some(super::Mutation::ShipsForgotten);
    let found = is_found(Weather { lie, ..BREAKING }, 0..40, 8, 2_000);
    println!("{found:?}");
    assert!(found.is_some());
}

/// Clients allow for a bound of drift. Only that keeps them from believing for too long; no other
/// check would find it.
#[test]
fn clocks_that_drift_further_than_clients_allow_for_are_found() {
    let found = is_found(Weather { drift_ppm: 300_000, ..SLOW }, 0..40, 8, 2_000);
    println!("{found:?}");
    assert!(found.is_some());
}

/// Three servers lose each other all the time, and machines lose some of them.
const SPLIT: Weather = Weather {
    servers: 3,
    calm_ms: 600,
    breaks: 1,
    one_way: 0,
    partitions: 0,
    slows: 0,
    freezes: 0,
    crashes: 0,
    ends: 0,
    splits: 8,
    stops: 2,
    slow_disks: 2,
    elections: 3,
    astray: 1,
    ..Weather::FOUL
};

/// An entry that only the leader has may be gone with the next leader.
#[test]
fn a_leader_that_acknowledges_what_it_alone_has_is_found() {
    let lie = Some(super::Mutation::AcknowledgesEarly);
    let found = is_found(Weather { lie, ..SPLIT }, 0..20, 5, 1_000);
    println!("{found:?}");
    assert!(found.is_some());
}

/// A deposed leader that does not know so may answer with what others have changed meanwhile.
#[test]
fn a_leader_that_answers_without_asking_whether_it_leads_is_found() {
    let lie = Some(super::Mutation::StaleReads);
    let found = is_found(Weather { lie, ..SPLIT }, 0..20, 5, 1_000);
    println!("{found:?}");
    assert!(found.is_some());
}

/// Leaders change all the time, each with a clock of its own, while nothing else goes wrong.
const ELECTING: Weather = Weather {
    servers: 3,
    calm_ms: 400,
    elections: 6,
    drift_ppm: Weather::DRIFT_PPM,
    slow_ms: 0,
    ..Weather::FAIR
};

/// Machines are away for longer than their terms, and leaders change now and then.
const AWAY: Weather = Weather { calm_ms: 8_000, elections: 1, partitions: 3, ..ELECTING };

/// The sum of the counts of so many seeds.
fn all_of(weather: Weather, seeds: std::ops::Range<u64>, machines: u64, calls: u64) -> Stats {
    let mut all = Stats::default();
    for seed in seeds {
        all += run_world_in(weather, seed, machines, calls).unwrap_or_else(|violation| panic!("{violation}"));
    }
    all
}

/// A new leader takes every session for just renewed, on its own clock, which goes on from the last
/// entry of the log. Its clock may be as much too fast as any, and its predecessor's too slow.
#[test]
fn a_new_leader_whose_clock_is_ahead_fences_nobody_early() {
    let well = all_of(ELECTING, 0..3, 5, 1_000);
    assert_eq!((well.cut_off, well.fenced, well.lost), (0, 0, 0), "{well:?}");
    assert!(well.elections > 100, "{well:?}");
    // Leases of machines that are away end here and there at the same time. No two machines hold
    // them, whichever server leads.
    let away = all_of(AWAY, 0..4, 8, 3_000);
    println!("{away:?}");
    assert!(away.fenced > 10 && away.elections > 10, "{away:?}");
    let found = is_found(Weather { drift_ppm: 600_000, ..AWAY }, 0..6, 8, 3_000);
    println!("{found:?}");
    assert!(found.is_some());
}

/// Replicas get their state in every way that there is. Some entries without a majority survive,
/// and some vanish.
#[test]
fn groups_of_servers_go_through_everything() {
    let mut all = all_of(SPLIT, 0..3, 5, 600);
    all += all_of(Weather { servers: 5, ..SPLIT }, 0..2, 5, 600);
    println!("{all:?}");
    assert!(all.elections > 100 && all.restarts > 100 && all.snapshots > 10, "{all:?}");
    assert!(all.questions > 1_000 && all.survived > 20 && all.vanished > 20, "{all:?}");
}

/// Groups grow and shrink all the time, on bad wires.
const MOVING: Weather = Weather {
    servers: 3,
    calm_ms: 1_500,
    changes: 6,
    splits: 1,
    elections: 1,
    restarts: 1,
    stops: 1,
    slow_ms: 500,
    ..Weather::FAIR
};

#[test]
fn groups_of_servers_grow_and_shrink_while_machines_work() {
    let mut all = all_of(MOVING, 0..4, 5, 1_500);
    all += all_of(Weather { servers: 1, ..MOVING }, 4..6, 5, 1_500);
    println!("{all:?}");
    assert!(all.changes > 100 && all.snapshots > 10 && all.elections > 20, "{all:?}");
    let well = all_of(Weather { changes: 1, calm_ms: 3_000, servers: 3, ..Weather::FAIR }, 0..2, 5, 1_500);
    println!("{well:?}");
    assert_eq!((well.cut_off, well.fenced, well.lost), (0, 0, 0), "{well:?}");
}

/// The only server that is to vote has lost the entry that says so. The others have the entry, and
/// so must lead once more, though they vote no more.
#[test]
fn who_votes_no_more_leads_until_that_is_committed() {
    let mut building = World::new(Weather { servers: 3, ..Weather::FAIR }, 0, 2, 0).unwrap();
    building.comes_to_rest().unwrap();
    let (all, left) = (BTreeSet::from([0, 1, 2]), BTreeSet::from([2]));
    let both = Members { voters: vec![all, left.clone()], learners: BTreeSet::new() };
    let alone = Members { voters: vec![left], learners: BTreeSet::from([0, 1]) };
    for at in 0..3 {
        let replica = &mut building.group.replicas[at];
        for members in [&both, &alone].into_iter().take(if at == 2 { 1 } else { 2 }) {
            let (term, time) = (replica.term, replica.log.last().time);
            let members = Some(Rc::new(members.clone()));
            replica.log.push(Rc::new(RaftEntry { term, time, inputs: Vec::new(), members }));
        }
        replica.durable = replica.log.last().index;
        replica.crashes(0);
        building.replica_starts(at).unwrap();
    }
    building.comes_to(|building| building.group.leader().is_some()).unwrap();
    assert_ne!(building.group.leader(), Some(2));
    building.comes_to_rest().unwrap();
}

#[test]
fn a_leader_that_changes_members_at_once_is_found() {
    let lie = Some(super::Mutation::ChangesAtOnce);
    let found = is_found(Weather { lie, ..MOVING }, 0..20, 5, 1_000);
    println!("{found:?}");
    assert!(found.is_some());
}

/// Four of eight machines have restricted rights.
const LIMITED: Weather =
    Weather { limited: 4, calm_ms: 2_000, breaks: 2, freezes: 1, crashes: 1, slow_ms: 500, ..Weather::FAIR };

#[test]
fn machines_are_granted_and_told_nothing_outside_of_their_rights() {
    let mut all = all_of(LIMITED, 0..6, 8, 2_000);
    all += all_of(Weather { servers: 3, elections: 1, ..LIMITED }, 0..3, 8, 2_000);
    println!("{all:?}");
    assert!(all.denied > 500, "{all:?}");
}

#[test]
fn a_server_that_forgets_rights_is_found() {
    let lie = Some(super::Mutation::ForgetsRights);
    let found = is_found(Weather { lie, ..LIMITED }, 0..4, 8, 1_000);
    println!("{found:?}");
    assert!(found.is_some());
}

/// Half of the programs' calls are about the spread of content, in bad weather.
const POLICIES: Weather =
    Weather { policies: 2, calm_ms: 2_000, breaks: 2, freezes: 1, crashes: 1, slow_ms: 500, ..Weather::FAIR };

#[test]
fn what_is_made_in_a_directory_is_spread_as_the_directory_says_whoever_says_so_when() {
    let mut all = all_of(POLICIES, 0..6, 8, 1_500);
    all += all_of(Weather { servers: 3, elections: 1, limited: 4, ..POLICIES }, 0..3, 8, 1_500);
    println!("{all:?}");
    assert!(all.inherited > 100 && all.spread > 50, "{all:?}");
}

/// The disk of one server after the other rots.
const ROTTING: Weather =
    Weather { servers: 3, calm_ms: 1_000, rots: 1, restarts: 2, elections: 1, slow_ms: 500, ..Weather::FAIR };

#[test]
fn what_rots_on_a_disk_is_found_and_comes_from_the_others() {
    let all = all_of(ROTTING, 0..4, 5, 1_500);
    println!("{all:?}");
    assert!(all.rotten > 10 && all.refused > 10, "{all:?}");
}

#[test]
fn a_server_that_believes_its_disk_is_found() {
    let lie = Some(super::Mutation::BelievesRot);
    let found = is_found(Weather { lie, ..ROTTING }, 0..20, 5, 1_000);
    println!("{found:?}");
    assert!(found.is_some());
}

/// Three servers that run the shipped code crash all the time: one, some or all of them.
const CRASHING: Weather = Weather { servers: 3, shipped: true, calm_ms: 1_500, restarts: 1, ..Weather::FAIR };

/// All kinds of faults befall them.
const ROUGH: Weather =
    Weather { splits: 1, stops: 1, slow_disks: 1, rots: 2, loses: 30, slow_ms: 1_000, ..CRASHING };

/// And the wanted servers change all the time.
const CHANGING: Weather = Weather { changes: 3, ..ROUGH };

#[test]
fn the_shipped_code_goes_through_everything() {
    let mut all = all_of(ROUGH, 0..8, 5, 300);
    // Time, order or chance that leaks from outside into openraft, the log or the rows shows here.
    let five = || all_of(Weather { servers: 5, ..ROUGH }, 4..5, 5, 150);
    let once = five();
    assert_eq!(once, five());
    all += once;
    println!("{all:?}");
    assert!(all.elections > 10 && all.restarts > 20 && all.snapshots > 10 && all.questions > 100, "{all:?}");
    assert!(all.handed_over > 10, "{all:?}");
    assert!(all.rotten > 0 && all.rotten == all.refused, "{all:?}");
}

/// Groups grow and shrink, down to one server and without the one that founded them, while leaders
/// change and disks are lost.
#[test]
fn the_shipped_code_adds_and_removes_servers_while_machines_work() {
    let all = all_of(CHANGING, 0..8, 5, 300);
    println!("{all:?}");
    assert!(all.changes > 80 && all.elections > 15 && all.snapshots > 20, "{all:?}");
}

/// Disks are full at times, with room for little more of the log.
const FULL: Weather = Weather { full_disks: 3, changes: 1, ..ROUGH };

/// A server whose disk is full goes on: its writes wait for room, and another server leads if it
/// must.
#[test]
fn the_shipped_code_goes_on_with_full_disks() {
    let all = all_of(FULL, 0..8, 5, 300);
    println!("{all:?}");
    assert!(all.full > 20 && all.elections > 12 && all.snapshots > 12, "{all:?}");
}

/// Disks of servers that start again are older copies, or have nothing on them.
const PUT_BACK: Weather = Weather { puts_back: 1, rots: 0, ..ROUGH };

/// The others find a server that has forgotten its promises. It neither votes nor leads, and is
/// added anew. No other server is refused.
#[test]
fn disks_that_are_put_back_or_emptied_are_found_by_the_others() {
    let all = all_of(PUT_BACK, 0..40, 5, 300);
    println!("{all:?}");
    assert!(all.put_back > 4 && all.refused > 3, "{all:?}");
}

#[test]
fn servers_that_believe_a_disk_that_was_put_back_are_found() {
    let lie = Some(super::Mutation::BelievesMembers);
    let found = is_found(Weather { lie, ..PUT_BACK }, 0..20, 5, 300);
    println!("{found:?}");
    assert!(found.is_some());
}

/// An append that is acknowledged before it is durable is gone once all that had it have crashed.
#[test]
fn a_disk_that_keeps_nothing_is_found() {
    let lie = Some(super::Mutation::DiskKeepsNothing);
    let found = is_found(Weather { lie, ..CRASHING }, 0..10, 5, 300);
    println!("{found:?}");
    assert!(found.is_some());
}

/// openraft's default: a server that led when it ended leads when it starts. It does not know then
/// how far the log was committed (found by the drill's kill-all, once).
#[test]
fn a_leader_that_leads_again_without_an_election_is_found() {
    let lie = Some(super::Mutation::RestoresLeader);
    let found = is_found(Weather { lie, ..CRASHING }, 0..20, 5, 300);
    println!("{found:?}");
    assert!(found.is_some());
}

/// Everything is replaced by the next program while nothing else goes wrong.
const UPGRADING: Weather = Weather { servers: 3, upgrade_ms: 2_000, slow_ms: 0, ..Weather::FAIR };

#[test]
fn a_rolling_upgrade_raises_the_version_and_sessions_of_both_go_on() {
    let servers = [UPGRADING, Weather { servers: 1, ..UPGRADING }];
    let well = servers.map(|weather| all_of(weather, 0..6, 8, 3_000));
    println!("{well:?}");
    for well in well {
        // Of a machine that gets the new program the session ends, as in a crash, and of nobody
        // else.
        assert_eq!((well.raised, well.cut_off), (6, 0), "{well:?}");
        assert!(well.by_last_version > 10, "{well:?}");
    }
    let foul = Weather { upgrade_ms: 2_000, servers: 3, ..Weather::FOUL };
    let foul = all_of(foul, 0..8, 8, 2_000);
    println!("{foul:?}");
    assert!(foul.raised > 0 && foul.by_last_version > 0, "{foul:?}");
}

#[test]
fn a_leader_that_raises_the_version_before_all_servers_know_it_is_found() {
    let lie = Some(super::Mutation::RaisesEarly);
    let found = is_found(Weather { lie, ..UPGRADING }, 0..20, 5, 1_000);
    println!("{found:?}");
    assert!(found.is_some_and(|found| found.contains("install a newer one")));
}

#[test]
fn in_the_same_weather_nothing_is_found_without_the_fault() {
    assert_eq!(is_found(SLOW, 0..12, 8, 2_000), None);
    assert_eq!(is_found(BREAKING, 0..12, 8, 2_000), None);
    assert_eq!(is_found(Weather { breaks: 20, calm_ms: 300, ..Weather::FOUL }, 0..12, 8, 2_000), None);
}

/// Machines end in order all the time, and servers are away while they do.
const ENDING: Weather = Weather {
    calm_ms: 1_500,
    ends: 6,
    crashes: 1,
    restarts: 3,
    partitions: 2,
    breaks: 1,
    slow_ms: 500,
    ..Weather::FAIR
};

/// Updates from before an orderly end are there after the next start, whatever was away meanwhile.
#[test]
fn what_an_orderly_end_leaves_goes_on_at_the_next_start() {
    let mut all = all_of(ENDING, 0..12, 6, 1_500);
    all += all_of(Weather { servers: 3, ..ENDING }, 12..18, 6, 1_500);
    println!("{all:?}");
    assert!(all.ends > 100 && all.went_on > 30, "{all:?}");
}

/// Nothing goes wrong but crashes of machines. Their programs often do nothing, so that updates
/// wait for their age alone.
const DYING: Weather =
    Weather { calm_ms: 3_000, crashes: 1, idles: 3, drift_ppm: Weather::DRIFT_PPM, ..Weather::FAIR };

/// Names and content alike are at the server within five seconds.
#[test]
fn what_was_done_five_seconds_before_a_crash_is_there() {
    let mut all = all_of(DYING, 0..12, 3, 600);
    all += all_of(Weather { servers: 3, ..DYING }, 12..16, 3, 600);
    println!("{all:?}");
    assert!(all.crashes > 200, "{all:?}");
}

/// The seed's weather, with one server.
fn lone(seed: u64) -> Weather {
    Weather { servers: 1, changes: 0, limited: 0, policies: 0, ..Weather::of(seed) }
}

/// Seeds that found a fault once, each with the fault.
#[test]
fn what_was_wrong_once_is_right() {
    // All the weather that the shipped code had at the time.
    let still = |seed| Weather { changes: 0, full_disks: 0, policies: 0, ..Weather::shipped(seed) };
    let seeds = [
        // A call that was given up was taken for a later one that did the same, which the server
        // had done. So one looked lost and the other done twice. And, with integers of directories
        // as they are now: a machine had not received the beginning of its new session, and went on
        // with it as if it were the one before.
        (lone(2), 2, 20, 3_000),
        // A machine did not know that it held all labels, and asked for one of them. It kept that
        // one when all were recalled; the server did not know.
        (SLOW, 6, 8, 2_000),
        // The simulation gave one number to two servers, of which one had yet to serve.
        (Weather::of(2277), 2277, 20, 500),
        // The only server that was to vote had lost the entry that said so. The servers that had
        // the entry had to lead, but did not stand for election, since they voted no more.
        (Weather::of(4768), 4768, 20, 500),
        // A change that the server had not applied was seen where it was written, once its lease
        // was released down to reading.
        (PING_PONG, 3, 3, 1_500),
        // The same, once the server had asked for write-through again.
        (PING_PONG, 1095, 3, 1_500),
        // A change was accepted in write-through while the server was about to say that
        // write-through had ended.
        (PING_PONG, 1106, 3, 1_500),
        // A machine was about to release names unasked. They were recalled meanwhile with all
        // others, and released a second time.
        (Weather::of(5), 5, 20, 500),
        // Forgotten leases were recalled meanwhile, and released a second time when that was
        // answered.
        (lone(0), 0, 5, 300),
        // A machine's connection broke after the welcome. Its next greeting named a session whose
        // beginning its client had not received.
        (lone(191), 191, 2, 500),
        (lone(439), 439, 2, 500),
        // Two programs of a machine did the same at once, and the wrong call was taken for done.
        (lone(179), 179, 4, 500),
        // Of two calls under way at once, the one that the server did was taken to come after the
        // other.
        (lone(316), 316, 2, 500),
        (lone(371), 371, 5, 500),
        // A machine saw the old name of a file that the server had already renamed for it, and
        // reported to others.
        (MOVING, 121, 5, 1_500),
        // The server refused an update of a file. Writes of the file from before that were
        // forgotten with the file, and were in no salvage.
        (LIMITED, 1009, 8, 1_500),
        // A shipped operation was refused: its file was moved out of the machine's rights before
        // the server had asked for the rest of the reply.
        (LIMITED, 1072, 8, 1_500),
        // A name's file was moved out of the machine's rights before it was looked at. By then the
        // name is bound to another file, or to none.
        (LIMITED, 1023, 8, 1_500),
        // A file was moved out of a machine's rights and back. It was gone for ever to a program
        // that had it open.
        (LIMITED, 54, 20, 3_000),
        // A user had no right to read a file when its lease was granted, and has it now. The user
        // read damage: the key had been withheld with the lease.
        (Weather { policies: 0, ..Weather::of(4) }, 4, 20, 3_000),
        // A machine without the lease had an extended attribute in an answer. It still knew the
        // attribute when the lease came, though the attribute had been removed.
        (POLICIES, 125, 8, 1_500),
        // openraft refused a leader's proposal, since its majority was slow to answer, and the
        // leader led on. A machine's message over a connection that went on was gone.
        (still(6), 6, 5, 300),
        // A leader gave its vote away to the member that was to stay, and still answered questions
        // under its lease.
        (still(13), 13, 5, 300),
        // openraft asserts that a leader which was removed changes no members.
        (CHANGING, 90, 5, 300),
        // The only voter left answered a removed leader before the entries from that leader were
        // durable.
        (CHANGING, 1316, 5, 300),
        // openraft goes on calling a member at the address that it had when the leader began to
        // lead.
        (CHANGING, 141, 5, 300),
        // A vote could not be written to the full disk, and the server ended.
        (FULL, 89, 5, 300),
        // Two members were left. The one that was ahead had to lead, and knew the other only at an
        // address that the other had left.
        (CHANGING, 131, 5, 300),
        (FULL, 123, 5, 300),
        // A lone server counted as one of several, though the entry that made it so could not be
        // written.
        (Weather::shipped(142), 142, 5, 200),
        // A checkpoint waited for room for longer than the next was to wait. The group's thread
        // looked without a pause whether that was due, and never ended.
        (FULL, 0, 5, 300),
    ];
    for (weather, seed, machines, calls) in seeds {
        run_world_in(weather, seed, machines, calls).unwrap_or_else(|violation| panic!("{violation}"));
    }
}
