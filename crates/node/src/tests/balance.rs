//! Regions move by themselves to balance the load of servers.

use super::backups::{ask, start};
use super::several::{delegate, is_clean, label, make, map, regions};
use crate::{BalanceSettings, Machine, MachineSettings};
use admin::{ControlRefusal, KeptWhy, MovedWhy, ServerOfMap};
use client::call;
use directory::BalanceRule;
use ident::{FileId, ServerId};
use namespace::{AttributeChange, FileKind};
use std::path::Path;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
/// Longer than many comparisons.
const LONG: Duration = Duration::from_secs(5);

/// A machine that compares its servers every 100 ms.
fn balancing(data: &Path) -> Machine {
    let balance = BalanceSettings {
        rule: BalanceRule { least: 8, ..BalanceRule::default() },
        active: 3_000 * MS,
        every: 100 * MS,
        rounds: 3,
        rests: Duration::from_secs(600),
        stays: (200 * MS, 400 * MS),
    };
    Machine::start(data, "a test", MachineSettings { balance, ..MachineSettings::default() }).unwrap()
}

/// A directory, and the files in it.
struct Dir {
    dir: FileId,
    files: Vec<FileId>,
}

/// A machine with directories of a hundred files, all at server 0, and an empty server 1. Regions
/// do not move yet.
fn loaded(data: &Path, dirs: &[&str]) -> (Machine, Vec<Dir>) {
    let machine = balancing(data);
    let root = machine.file_service().root();
    machine.server().unwrap().switch_balance(false).unwrap();
    make(&machine, &root, "empty", FileKind::Directory);
    assert_eq!(delegate(&machine, "/empty", None), Ok(1));
    let made = dirs.iter().map(|name| {
        let dir = make(&machine, &root, name, FileKind::Directory);
        let file = |n: u64| make(&machine, &dir, &format!("file-{n}"), FileKind::Regular);
        let files = (0..100).map(file).collect();
        Dir { dir, files }
    });
    let made = made.collect();
    assert!(machine.client_host().flush(Duration::from_secs(60)));
    (machine, made)
}

/// Has all files in use until `done`, or for so long. Returns whether it is done.
fn uses(machine: &Machine, dirs: &[Dir], at_most: Duration, mut done: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    for mode in (0..8).cycle() {
        if done() {
            return true;
        }
        if begun.elapsed() > at_most {
            return false;
        }
        // Each server hears of every change.
        for file in dirs.iter().flat_map(|it| &it.files) {
            let change = AttributeChange { mode: Some(0o640 + mode), ..AttributeChange::default() };
            let change =
                call::SetAttributes { file: file.clone(), change, size: None, through_handle: false };
            let _ = ask(machine, change);
        }
        machine.client_host().flush(Duration::from_secs(60));
        std::thread::sleep(200 * MS);
    }
    false
}

fn at(machine: &Machine, dir: &Dir) -> ServerId {
    machine.server().unwrap().manager(&dir.dir).map_or(ServerId(u16::MAX), |hosted| hosted.id())
}

#[test]
fn a_region_moves_by_itself_to_a_server_with_nothing_to_do() {
    let data = tempfile::tempdir().unwrap();
    let (machine, dirs) = loaded(data.path(), &["a", "b", "c"]);
    let server = machine.server().unwrap();
    let moved = || dirs.iter().filter(|dir| at(&machine, dir) == ServerId(1)).count();
    // Nothing moves as long as nothing is to.
    assert!(!uses(&machine, &dirs, LONG, || moved() > 0));
    let report = server.balance_report(false, &mut |_| {}).unwrap();
    assert!(!report.on && report.servers[0].active >= 300 && report.servers[1].active < 8, "{report:?}");
    let [pair] = &report.pairs[..] else { panic!("{report:?}") };
    assert_eq!((pair.from, pair.to, pair.stays), (0, 1, None), "{report:?}");
    assert_eq!(moved(), 0, "to tell it moves nothing");
    server.switch_balance(true).unwrap();
    assert!(uses(&machine, &dirs, Duration::from_secs(60), || moved() == 1));
    // A third of the load: now no other directory is to go, and none comes back.
    assert!(!uses(&machine, &dirs, LONG, || moved() != 1));
    let now = map(&machine);
    let of = now.servers[1].regions.iter().find(|region| region.path != "/empty").unwrap();
    assert_eq!((of.why, of.pinned), (Some(MovedWhy::Balance), false));
    assert!(of.since.is_some_and(|at| os::utc_secs() - at < 120));
    let whole = server.map(Some(&format!("{}/file-1", of.path))).unwrap();
    assert_eq!((whole.servers.len(), whole.servers[0].server), (1, 1));
    assert_eq!(whole.servers[0].regions.iter().collect::<Vec<_>>(), [of]);
    is_clean(&machine);
    machine.stop().unwrap();
}

#[test]
fn what_is_pinned_stays_and_what_was_delegated_is_pinned() {
    let data = tempfile::tempdir().unwrap();
    let (machine, dirs) = loaded(data.path(), &["a", "b"]);
    let server = machine.server().unwrap();
    assert_eq!(map(&machine).pins.iter().map(|pin| pin.path.as_str()).collect::<Vec<_>>(), ["/empty"]);
    let are_pinned = || {
        let all = map(&machine).servers;
        let is_pinned = |server: &ServerOfMap| server.regions.iter().all(|region| region.pinned);
        all.iter().map(is_pinned).collect::<Vec<bool>>()
    };
    assert_eq!(are_pinned(), [false, true], "a pin of another server's region pins that one");
    let missing = ControlRefusal::NoFile { path: "/x".to_owned() };
    assert_eq!(server.pin("/x", true), Err(missing));
    let unpinned = ControlRefusal::NotPinned { path: "/a".to_owned() };
    assert_eq!(server.pin("/a", false), Err(unpinned));
    server.pin("/a", true).unwrap();
    assert_eq!(are_pinned(), [true, true]);
    server.pin("/b/file-7", true).unwrap();
    server.switch_balance(true).unwrap();
    let home = || dirs.iter().all(|dir| at(&machine, dir) == ServerId::ROOT);
    assert!(!uses(&machine, &dirs, LONG, || !home()));
    let report = server.balance_report(true, &mut |_| {}).unwrap();
    assert_eq!((report.pairs[0].stays, report.moved.len()), (Some(KeptWhy::Pinned), 0), "{report:?}");
    // A pin of what is gone is gone, too, and no longer in the way.
    server.pin("/a", false).unwrap();
    let remove =
        call::Unlink { dir: dirs[1].dir.clone(), label: label("file-7"), directory: false, pending: None };
    ask(&machine, remove).unwrap();
    assert!(machine.client_host().flush(Duration::from_secs(60)));
    super::wait_until("rid of a pin", || map(&machine).pins.len() == 1);
    assert!(uses(&machine, &dirs, Duration::from_secs(60), || !home()));
    machine.stop().unwrap();
}

/// People need not wait for three comparisons.
#[test]
fn on_demand_the_load_is_balanced_at_once() {
    let data = tempfile::tempdir().unwrap();
    let (machine, dirs) = loaded(data.path(), &["a", "b"]);
    let server = machine.server().unwrap();
    assert!(!uses(&machine, &dirs, LONG, || false));
    let report = server.balance_report(true, &mut |_| {}).unwrap();
    assert_eq!(report.moved.len(), 1, "{report:?}");
    assert_eq!((report.moved[0].from, report.moved[0].to), (0, 1));
    assert_eq!(regions(&machine)[1].len(), 2);
    let again = server.balance_report(true, &mut |_| {}).unwrap();
    assert_eq!((again.moved.len(), again.pairs[0].stays), (0, Some(KeptWhy::Even)), "{again:?}");
    // A region that has just moved, by hand too, is left alone: the other one goes next.
    server.delegate("/a", Some(0), false, &mut |_| {}).unwrap();
    assert!(!uses(&machine, &dirs, Duration::from_secs(1), || false));
    let next = server.balance_report(false, &mut |_| {}).unwrap();
    assert_eq!((next.pairs[0].gives.as_deref(), next.pairs[0].stays), (Some("/b"), None), "{next:?}");
    drop(server);
    machine.stop().unwrap();
    // Pins and reasons are there after a restart, and a new beginning is not compared.
    let machine = start(data.path());
    let server = machine.server().unwrap();
    let report = server.balance_report(true, &mut |_| {}).unwrap();
    assert_eq!(report.pairs[0].stays, Some(KeptWhy::NotWatched), "{report:?}");
    let region =
        |path: &str| map(&machine).servers[1].regions.iter().find(|region| region.path == path).unwrap().why;
    assert_eq!(region("/empty"), Some(MovedWhy::Asked));
    assert_eq!(map(&machine).pins.len(), 1);
    machine.stop().unwrap();
}
