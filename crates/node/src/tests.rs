//! Whole machines on damaged, old or copied data directories.

pub(crate) mod backups;
mod balance;
mod peers;
mod several;
mod sweep;

use crate::{Listen, Machine, MachineError, MachineSettings};
use admin::Invitation;
use backups::{content, read, start, write};
use data_dir::Identity;
use net::join;
use raft::GroupSettings;
use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Small, since the tests copy directories again and again.
const SMALL: GroupSettings =
    GroupSettings { memory_bytes: 8 << 20, checkpoint_after: Duration::from_secs(60), log_bytes: 256 << 10 };

const NAMES: [&str; 4] = ["small-a", "small-b", "large-a", "large-b"];

fn small() -> MachineSettings {
    MachineSettings { group: SMALL, ..MachineSettings::default() }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (kind, to) = (entry.file_type().unwrap(), to.join(entry.file_name()));
        let unused = ["ballast", "spare", "reserve"]
            .iter()
            .any(|name| entry.file_name().to_string_lossy().ends_with(name));
        if kind.is_dir() {
            copy(&entry.path(), &to);
        } else if kind.is_file() && !unused {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Returns everything in a directory, except the files of shares and empty directories: those are
/// tested with the share server.
fn all_in(dir: &Path, below: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir.join(below)).unwrap().flatten() {
        let path = below.join(entry.file_name());
        if !entry.file_type().unwrap().is_dir() {
            all.push(path);
            continue;
        }
        let inner = all_in(dir, &path);
        if path.parent() != Some(Path::new("shares/shares")) {
            all.extend(inner);
        } else if inner.is_empty() {
            continue;
        }
        all.push(path);
    }
    all
}

fn take_away(path: &Path, empty: bool) {
    match (path.is_dir(), empty) {
        (true, false) => fs::remove_dir_all(path).unwrap(),
        (true, true) => {
            fs::remove_dir_all(path).unwrap();
            fs::create_dir(path).unwrap();
        }
        (false, false) => fs::remove_file(path).unwrap(),
        (false, true) => fs::write(path, b"").unwrap(),
    }
}

/// Each file and directory of a server is removed, or emptied; keys and other doubled files also
/// with their copies. The machine works with all its data, or names the missing file.
#[test]
fn what_is_missing_is_named_or_not_needed() {
    let (live, left) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let machine = Machine::start(live.path(), "a test", small()).unwrap();
    NAMES[..2].iter().for_each(|name| write(&machine, name).unwrap());
    machine.server().unwrap().group().checkpoint();
    NAMES[2..].iter().for_each(|name| write(&machine, name).unwrap());
    // As a killed machine leaves it.
    copy(live.path(), left.path());
    machine.stop().unwrap();
    let mut cases: Vec<Vec<PathBuf>> =
        all_in(left.path(), Path::new("")).into_iter().map(|path| vec![path]).collect();
    let twice: Vec<PathBuf> = cases
        .iter()
        .flatten()
        .filter(|path| left.path().join("copies").join(path).is_file())
        .cloned()
        .collect();
    cases.extend(twice.into_iter().map(|path| vec![Path::new("copies").join(&path), path]));
    let (mut named, mut worked) = (Vec::new(), Vec::new());
    for (case, empty) in cases.iter().flat_map(|case| [(case, false), (case, true)]) {
        let dir = tempfile::tempdir().unwrap();
        copy(left.path(), dir.path());
        case.iter().for_each(|path| take_away(&dir.path().join(path), empty));
        let missing = case.last().unwrap();
        // This is a share whose file is gone, which a reader finds.
        if empty && missing.parent() == Some(Path::new("shares/shares")) {
            continue;
        }
        match Machine::start(dir.path(), "a test", small()) {
            Ok(machine) => {
                for name in NAMES {
                    assert!(
                        read(&machine, name) == Ok(content(name)),
                        "{name} is gone with {case:?}, emptied: {empty}"
                    );
                }
                worked.push((missing.clone(), empty));
                machine.stop().unwrap();
            }
            Err(error) => {
                let text = crate::error::in_words(&error);
                // It may name the directory that the missing file is in.
                let first = missing.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
                assert!(text.contains(&first), "{missing:?} is not named: {text}");
                assert!(!matches!(error, MachineError::NoSession), "{missing:?}: {text}");
                named.push((missing.clone(), empty));
            }
        }
    }
    println!("named: {named:?}\nnot needed: {worked:?}");
    for essential in
        ["server", "server/rows", "server/log", "shares", "shares/leases.sqlite", "shares/shares"]
    {
        assert!(named.iter().filter(|(path, _)| path == Path::new(essential)).count() == 2, "{essential}");
    }
    for key in ["machine.key", "machine.crt", "authority.crt", "machine.json", "format"] {
        assert!(named.iter().filter(|(path, _)| path == Path::new(key)).count() == 2, "{key}");
    }
}

/// Segments of the log are deleted, cut, or replaced by an earlier state.
#[test]
fn no_log_that_ends_too_early_is_believed() {
    let (live, left) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let machine = Machine::start(live.path(), "a test", small()).unwrap();
    let mut earlier: Vec<TempDir> = Vec::new();
    for round in 0..6 {
        write(&machine, &format!("small-{round}")).unwrap();
        let then = tempfile::tempdir().unwrap();
        copy(&live.path().join("server"), then.path());
        earlier.push(then);
    }
    copy(live.path(), left.path());
    drop(machine);
    let segments = |dir: &Path| {
        let files = fs::read_dir(dir.join("log")).unwrap().flatten().map(|file| file.path());
        let mut found: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|kind| kind == "log")).collect();
        found.sort();
        found
    };
    let (mut tried, mut found) = (0, 0);
    let mut tries = |what: &str, change: &dyn Fn(&Path)| {
        let dir = tempfile::tempdir().unwrap();
        copy(left.path(), dir.path());
        change(&dir.path().join("server"));
        tried += 1;
        match Machine::start(dir.path(), "a test", small()) {
            Err(error) => {
                let text = crate::error::in_words(&error);
                assert!(text.contains("log") || text.contains("rows"), "{what}: {text}");
                found += 1;
            }
            Ok(machine) => {
                for round in 0..6 {
                    let name = format!("small-{round}");
                    assert!(
                        read(&machine, &name) == Ok(content(&name)),
                        "{what} is believed: {name} is gone"
                    );
                }
                machine.stop().unwrap();
            }
        }
    };
    for segment in segments(&left.path().join("server")) {
        let name = segment.file_name().unwrap().to_owned();
        let in_log = |server: &Path| server.join("log").join(&name);
        tries("a deleted segment", &|server| fs::remove_file(in_log(server)).unwrap());
        let length = fs::metadata(&segment).unwrap().len();
        for eighth in 0..8 {
            tries("a segment that is cut", &|server| {
                fs::OpenOptions::new()
                    .write(true)
                    .open(in_log(server))
                    .and_then(|file| file.set_len(length * eighth / 8))
                    .unwrap();
            });
        }
        for then in &earlier {
            let old = then.path().join("log").join(&name);
            if old.exists() {
                tries("an older segment", &|server| _ = fs::copy(&old, in_log(server)).unwrap());
            }
        }
    }
    for then in &earlier {
        tries("an older log", &|server| {
            fs::remove_dir_all(server.join("log")).unwrap();
            copy(&then.path().join("log"), &server.join("log"));
        });
        tries("older rows", &|server| _ = fs::copy(then.path().join("rows"), server.join("rows")).unwrap());
    }
    println!("{tried} changes, {found} of them refused");
    assert!(found > 10, "{found} of {tried}");
}

/// A server whose state is older than its acknowledgements starts only by an explicit order. All
/// sessions end then.
#[test]
fn an_older_state_is_gone_on_with_if_people_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let machine = start(dir.path());
    write(&machine, "small-a").unwrap();
    machine.stop().unwrap();
    Identity::change(dir.path(), |known| known.older = true).unwrap();
    let Err(refused) = Machine::start(dir.path(), "a test", MachineSettings::default()) else {
        panic!("started")
    };
    assert!(
        matches!(refused, MachineError::Older(_)) && refused.to_string().contains("--accept-older-state")
    );
    let accepts = MachineSettings { accepts_older: true, ..MachineSettings::default() };
    let machine = Machine::start(dir.path(), "a test", accepts).unwrap();
    assert!(read(&machine, "small-a") == Ok(content("small-a")));
    // As after a backup, sessions are numbered above every number that can be in use.
    let session = machine.client_host().session().unwrap();
    assert!(session.0 > 1 << 32, "{session:?}");
    write(&machine, "small-b").unwrap();
    machine.stop().unwrap();
    let machine = start(dir.path());
    assert!(read(&machine, "small-b") == Ok(content("small-b")));
    machine.stop().unwrap();
}

/// The share server's files are there, but the state that refers to them is not: the state is of a
/// new file system in its place.
#[test]
fn a_state_that_knows_of_nothing_is_no_reason_to_delete() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for _ in 0..3 {
        let machine = start(dir.path());
        NAMES.iter().for_each(|name| _ = write(&machine, name));
        std::thread::sleep(Duration::from_millis(300));
        machine.stop().unwrap();
    }
    let shares = |dir: &Path| all_shares(&dir.join("shares/shares"));
    let before = shares(dir.path());
    assert!(!before.is_empty());
    start(other.path()).stop().unwrap();
    fs::remove_dir_all(other.path().join("shares")).unwrap();
    fs::rename(dir.path().join("shares"), other.path().join("shares")).unwrap();
    let machine = start(other.path());
    std::thread::sleep(Duration::from_secs(3));
    machine.stop().unwrap();
    assert_eq!(shares(other.path()), before);
    // The new file system is meant: the old shares go.
    fs::remove_file(other.path().join("shares/acted-for")).unwrap();
    let machine = start(other.path());
    let begun = Instant::now();
    while !shares(other.path()).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(300), "hangs: nothing is let go");
        std::thread::sleep(Duration::from_millis(100));
    }
    machine.stop().unwrap();
}

fn all_shares(dir: &Path) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .flatten()
        .flat_map(|prefix| fs::read_dir(prefix.path()).unwrap().flatten())
        .map(|share| PathBuf::from(share.file_name()))
        .collect();
    all.sort();
    all
}

/// A cluster of three servers in one process, the first of which founded it.
fn three() -> (Vec<TempDir>, Vec<Machine>) {
    let mut dirs = vec![tempfile::tempdir().unwrap()];
    let mut machines = vec![Machine::start(dirs[0].path(), "a test", listening(ANY_PORT)).unwrap()];
    for name in ["second", "third"] {
        let (dir, machine) = another(dirs[0].path(), &machines[0], name, ANY_PORT);
        admin::add_server(dirs[0].path(), name, &mut |_| ()).unwrap();
        dirs.push(dir);
        machines.push(machine);
    }
    (dirs, machines)
}

const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn listening(at: SocketAddr) -> MachineSettings {
    MachineSettings { listen: Listen::At(at), ..small() }
}

/// A machine that joins the cluster of `first`, in `first_dir`. As a server it would listen at
/// `listens`.
fn another(first_dir: &Path, first: &Machine, name: &str, listens: SocketAddr) -> (TempDir, Machine) {
    let invitation = Invitation {
        path: "/".into(),
        read_only: false,
        squash: None,
        good_for_s: 60,
        addresses: vec![first.listens().unwrap().to_string()],
    };
    let token = admin::invite(first_dir, invitation).unwrap().token.parse().unwrap();
    let dir = tempfile::tempdir().unwrap();
    join(dir.path(), &token, name).unwrap();
    let machine = Machine::start(dir.path(), "a test", listening(listens)).unwrap();
    (dir, machine)
}

/// A failed attempt to serve leaves nothing behind that hinders the next one.
#[test]
fn a_machine_whose_port_was_in_use_serves_when_the_port_is_free() {
    let dir = tempfile::tempdir().unwrap();
    let first = Machine::start(dir.path(), "a test", listening(ANY_PORT)).unwrap();
    let taken = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let (second_dir, second) = another(dir.path(), &first, "second", taken.local_addr().unwrap());
    assert!(admin::add_server(dir.path(), "second", &mut |_| ()).is_err());
    assert!(second.server().is_none());
    drop(taken);
    admin::add_server(dir.path(), "second", &mut |_| ()).unwrap();
    assert!(second.server().is_some());
    for machine in [second, first] {
        match machine.stop() {
            Ok(()) | Err(MachineError::LeftForNextStart { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    drop(second_dir);
}

/// Whether the servers of these three machines, and no others, are members and vote. A machine that
/// is added anew has a server before the others know of it, and a test that took such a group for
/// whole would take a majority away.
fn are_whole(machines: &[Machine]) -> bool {
    let servers: Option<Vec<_>> = machines.iter().map(Machine::server).collect();
    let Some(servers) = servers else { return false };
    let own: BTreeSet<u64> = servers.iter().map(|server| server.group().member()).collect();
    let leader = servers.iter().rfind(|server| server.group().leads());
    leader.is_some_and(|leader| {
        let members = leader.group().standing().members;
        let voters = members.iter().filter(|member| member.votes).map(|member| member.id);
        members.len() == 3 && voters.collect::<BTreeSet<u64>>() == own
    })
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(300), "hangs: waiting for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Round trips are known for each purpose of a connection: a leader talks to its followers and to
/// hosts of shares, and a client to the leader.
#[test]
fn the_round_trip_to_each_peer_is_known() {
    let (_dirs, machines) = three();
    wait_until("three to vote", || are_whole(&machines));
    let leads = || {
        let mut servers = machines.iter().map(|machine| machine.server().unwrap());
        servers.position(|server| server.group().leads()).unwrap_or_default()
    };
    let peers = |at: usize, connection: &str| -> Vec<u64> {
        let known = machines[at].membership().round_trips().report().into_iter();
        known.filter(|to| to.connection == connection).map(|to| to.machine).collect()
    };
    let others = |at: usize| -> Vec<u64> { (1..=3).filter(|number| *number != at as u64 + 1).collect() };
    wait_until("those of the group", || peers(leads(), "group") == others(leads()));
    wait_until("those of shares", || peers(leads(), "shares") == others(leads()));
    wait_until("that of a session", || {
        let (leader, client) = (leads(), (leads() + 1) % 3);
        let upstream = machines[client].client_host().upstream();
        upstream.send(ident::ServerId::ROOT, None, wire::ToServer::Renew);
        upstream.push();
        peers(client, "session") == [leader as u64 + 1]
    });
}

/// Stops machines one after another. With two of three gone the last has no majority.
fn stop_all(machines: Vec<Machine>) {
    for machine in machines {
        match machine.stop() {
            Ok(()) | Err(MachineError::LeftForNextStart { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Writes a `cluster.json` of a machine that is no server, as an error once did.
fn forget_that_it_serves(dir: &Path) {
    let mut known: serde_json::Value =
        serde_json::from_slice(&data_dir::read_file(dir, "cluster.json").unwrap().unwrap()).unwrap();
    known["member"] = serde_json::Value::Null;
    data_dir::replace_file(dir, "cluster.json", known.to_string().as_bytes()).unwrap();
}

/// The founder forgets that it serves, and so does another server, one with its state and one
/// without.
#[test]
fn a_machine_that_forgot_that_it_serves_serves_again() {
    let (dirs, mut machines) = three();
    wait_until("three to vote", || are_whole(&machines));
    write(&machines[1], "small-a").unwrap();
    for (at, keeps_state) in [(0, true), (2, true), (2, false), (0, false)] {
        let machine = machines.remove(at);
        let (listens, member) = (machine.listens().unwrap(), machine.server().unwrap().group().member());
        machine.stop().unwrap();
        let dir = dirs[at].path();
        forget_that_it_serves(dir);
        if !keeps_state {
            data_dir::remove_server(dir).unwrap();
            Identity::change(dir, |known| known.serves = None).unwrap();
        }
        machines.insert(at, Machine::start(dir, "a test", listening(listens)).unwrap());
        wait_until("it to serve again", || are_whole(&machines));
        let server = machines[at].server().unwrap();
        assert_eq!(server.group().member() == member, keeps_state);
        assert!(!machines[at].status().lacks_server);
        drop(server);
        wait_until("that to be noted", || {
            let known = data_dir::Cluster::of(dir).unwrap().unwrap();
            known.member.is_some() && !known.again
        });
    }
    assert!(read(&machines[0], "small-a") == Ok(content("small-a")));
    stop_all(machines);
}

/// Each restart leaves the note that the machine serves, whatever news come at its beginning and
/// its end.
#[test]
fn restarts_leave_the_note_that_a_machine_serves() {
    let (dirs, mut machines) = three();
    wait_until("three to vote", || are_whole(&machines));
    let members: Vec<u64> =
        machines.iter().map(|machine| machine.server().unwrap().group().member()).collect();
    for round in 0..12 {
        let at = round % 3;
        let machine = machines.remove(at);
        let listens = machine.listens().unwrap();
        machine.stop().unwrap();
        let noted = || data_dir::Cluster::of(dirs[at].path()).unwrap().unwrap().member;
        assert_eq!(noted(), Some(members[at]), "at the end of round {round}");
        machines.insert(at, Machine::start(dirs[at].path(), "a test", listening(listens)).unwrap());
        assert_eq!(noted(), Some(members[at]), "at the beginning of round {round}");
        wait_until("three to serve", || are_whole(&machines));
    }
    stop_all(machines);
}

/// A server that quarantines its data serves again in the same process, once and once more. The
/// founder's client had a private way to that server.
#[test]
fn who_put_its_state_aside_serves_again_without_another_start() {
    let (dirs, machines) = three();
    wait_until("three to vote", || are_whole(&machines));
    write(&machines[1], "small-a").unwrap();
    for round in 0..2 {
        let server = machines[0].server().unwrap();
        let member = server.group().member();
        let log = dirs[0].path().join("server/log");
        for segment in fs::read_dir(&log).unwrap().flatten().map(|entry| entry.path()) {
            if segment.extension().is_some_and(|kind| kind == "log") {
                use std::os::unix::fs::FileExt;
                let file = fs::OpenOptions::new().write(true).open(segment).unwrap();
                file.write_all_at(&[0x5a; 64], 128).unwrap();
            }
        }
        assert!(catch_unwind(AssertUnwindSafe(|| server.group().reread_log(None))).is_err());
        drop(server);
        wait_until("the server to be another", || {
            are_whole(&machines)
                && machines[0].server().is_some_and(|server| server.group().member() != member)
        });
        let name = format!("small-{round}");
        write(&machines[0], &name).unwrap();
        assert!(read(&machines[2], &name) == Ok(content(&name)));
    }
    stop_all(machines);
}
