//! A bit flips, anywhere in the files of a store. A read returns the bytes that were written, or
//! the damage is noticed. No leased share is lost or deleted.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::{ME, Random, World, body, files, id};
use crate::{
    AccountKey, Damage, DatabaseError, Deletion, OpenError, ReadError, ReapError, ShareId, ShareLease,
    ShareServer, StoredShare, Suspended, Usage,
};

/// Leased shares are `0..LEASED`; some more are unleased.
const LEASED: u64 = 120;
const UNLEASED: u64 = 10;
const KEY: AccountKey = AccountKey([7; 32]);

/// A store with the answers to all queries, and its files to flip bits of.
struct Store {
    dir: PathBuf,
    now: u64,
    written: Reported,
}

/// The answers, in order.
#[derive(Debug, PartialEq)]
struct Reported {
    shares: BTreeMap<ShareId, (StoredShare, Vec<ShareLease>)>,
    accounts: Vec<(i64, String, Usage)>,
    stored: Usage,
    incidents: usize,
}

fn ask(server: &ShareServer) -> Result<Reported, DatabaseError> {
    let mut rows = Vec::new();
    server.for_each_share(|share| {
        rows.push(share.clone());
        std::ops::ControlFlow::Continue(())
    })?;
    let mut shares = BTreeMap::new();
    for row in rows {
        shares.insert(row.id, (row.clone(), server.leases_of(&row.id)?));
    }
    let mut accounts = Vec::new();
    for account in server.accounts()? {
        accounts.push((account.id.0, account.name, server.usage(account.id)?));
    }
    Ok(Reported { shares, accounts, stored: server.stored()?, incidents: server.incidents()?.len() })
}

/// A store in use. It is copied after a clean end, or with a log as a crash leaves it.
fn store(clean: bool) -> (World, Store) {
    let world = World::new();
    let mut running = world.open();
    let mut server = &running.server;
    let group = server.account("group-1").unwrap();
    let stranger =
        server.key_account(KEY, "stranger", Some(Usage { shares: 50, bytes: 1 << 20 })).unwrap().unwrap();
    for n in 0..LEASED + UNLEASED {
        running.store(&[(id(n), &body(n))], if n % 2 == 0 { group } else { ME }).unwrap();
    }
    server.lease(stranger, &[id(3), id(4), id(5)], Some(world.now() + 90 * 24 * 3600)).unwrap();
    let unneeded: Vec<ShareId> = (LEASED..LEASED + UNLEASED).map(id).collect();
    server.release_all(&unneeded, Deletion::AfterGrace).unwrap();
    // The store has everything, such as a finished pass and an incident.
    server.expire().unwrap();
    let lost = world.dir().join("shares/04").join(crate::share::file_name(&id(9)));
    let bytes = fs::read(&lost).unwrap();
    fs::remove_file(&lost).unwrap();
    server.verify(&id(9)).unwrap_err();
    fs::write(&lost, bytes).unwrap();
    server.verify(&id(9)).unwrap();
    server.scrub().unwrap();
    assert_eq!(server.suspended().unwrap(), None);
    if !clean {
        // The log is this run's own and has all kinds of commits.
        drop(running);
        running = world.open();
        server = &running.server;
        for n in 0..40 {
            world.advance(1);
            server.lease(group, &[id(n), id(n + 40)], None).unwrap();
            running.store(&[(id(n), &body(n))], ME).unwrap();
        }
        for n in LEASED - 5..LEASED {
            server.release_all(&[id(n)], Deletion::AfterGrace).unwrap();
            server.lease(ME, &[id(n)], Some(world.now() + 80 * 24 * 3600)).unwrap();
        }
    }
    let written = ask(server).unwrap();
    let dir = world.dir().with_file_name("template");
    if clean {
        drop(running);
        copy(&world.dir(), &dir, None);
    } else {
        copy(&world.dir(), &dir, None);
        drop(running);
    }
    let now = world.now();
    (world, Store { dir, now, written })
}

/// Copies a store. Its share files are links, except `own`.
fn copy(from: &Path, to: &Path, own: Option<&Path>) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            if entry.file_name() == "tmp" || fs::read_dir(&path).unwrap().next().is_some() {
                copy(&path, &target, own);
            }
        } else if path.extension().is_none() && path.file_name().unwrap().len() == 32 && own != Some(&path) {
            fs::hard_link(path, target).unwrap();
        } else if !path.to_str().unwrap().ends_with("-shm") {
            fs::copy(path, target).unwrap();
        }
    }
}

/// The effect of one flip.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    /// The store does not open, and says why.
    Refused,
    /// The database was made anew, or its shares discovered anew.
    Rebuilt,
    /// A request failed, or the scrub found the damage; the next start rebuilt the database.
    Noticed,
    /// One share is damaged, and reads of it say so.
    ShareDamaged,
    /// The flip changed no answer.
    Harmless,
}

fn is_corrupt(error: &DatabaseError) -> bool {
    // SQLite's error for a damaged page is not always "corrupt", but there always is one.
    matches!(error, DatabaseError::Corrupt { .. } | DatabaseError::Sql { .. })
}

fn is_noticed(result: Result<(), DatabaseError>) -> bool {
    match result {
        Ok(()) => false,
        Err(error) if is_corrupt(&error) => true,
        Err(error) => panic!("{error}"),
    }
}

fn flip(store: &Store, file: &Path, bit: u64) -> Shown {
    let world = World::new();
    world.set(store.now);
    let dir = world.dir();
    copy(&store.dir, &dir, Some(&store.dir.join(file)));
    let path = dir.join(file);
    let mut bytes = fs::read(&path).unwrap();
    bytes[usize::try_from(bit / 8).unwrap()] ^= 1 << (bit % 8);
    fs::write(&path, &bytes).unwrap();
    let share_flipped = crate::share::from_file_name(file.file_name().unwrap().to_str().unwrap());
    let running = match world.try_open(None) {
        Ok(running) => running,
        Err(OpenError::Newer { .. } | OpenError::Foreign { .. } | OpenError::Database(_)) => {
            check_files(&world);
            return Shown::Refused;
        }
        Err(error) => panic!("{error}"),
    };
    let server = &running.server;
    let anew = server.suspended().unwrap_or(Some(Suspended::Damaged)) == Some(Suspended::Discovering);
    match server.finish_discovery() {
        Ok(()) => {}
        Err(ReapError::Database(error)) if is_corrupt(&error) => {}
        Err(error) => panic!("{error}"),
    }
    // No answer is wrong before the whole database has been checked.
    let told = ask(server);
    let exact = match &told {
        Ok(told) => *told == store.written,
        Err(_) => false,
    };
    let mut noticed = is_noticed(told.map(|_| ()));
    check_reads(&world, &running, share_flipped);
    noticed |= is_noticed(server.scrub());
    noticed |= server.suspended().unwrap_or(Some(Suspended::Damaged)) == Some(Suspended::Damaged);
    assert!(exact || anew || noticed || share_flipped.is_some(), "a wrong answer was believed");
    // A month goes by, with requests every day.
    for _ in 0..30 {
        world.advance(23 * 3600);
        noticed |= is_noticed(server.account("group-1").map(|_| ()));
    }
    noticed |= is_noticed(server.expire());
    match server.reap() {
        Ok(()) => {}
        Err(ReapError::Database(error)) if is_corrupt(&error) => {}
        Err(error) => panic!("{error}"),
    }
    check_files(&world);
    drop(running);
    let again = world.open();
    again.server.reap().unwrap();
    check_files(&world);
    check_reads(&world, &again, share_flipped);
    again.server.scrub().unwrap();
    assert_ne!(again.server.suspended().unwrap(), Some(Suspended::Damaged), "made anew");
    let flipped = share_flipped.map(|id| again.server.verify(&id));
    match flipped {
        Some(Err(ReadError::Damaged { .. })) => Shown::ShareDamaged,
        Some(other) => panic!("{other:?}"),
        None if anew => Shown::Rebuilt,
        None if noticed => Shown::Noticed,
        None => Shown::Harmless,
    }
}

/// Checks that every leased share is still there.
fn check_files(world: &World) {
    let present = files(&world.dir()).0;
    for n in 0..LEASED {
        assert!(present.contains(&id(n)), "share {n} was deleted");
    }
}

fn check_reads(world: &World, running: &super::Running, flipped: Option<ShareId>) {
    for n in 0..LEASED {
        let length = u32::try_from(body(n).len()).unwrap();
        match running.server.read(&id(n), 0, length) {
            // A reader of a part checks it against a hash of its own. The server answers only for
            // the whole.
            Ok(bytes) if flipped != Some(id(n)) => assert_eq!(bytes, body(n)),
            Ok(_) => {}
            Err(ReadError::Damaged { damage: Damage::Missing, .. }) => panic!("share {n} is lost"),
            Err(ReadError::Damaged { .. }) if flipped == Some(id(n)) => {}
            // A log that lost its end may have lost the note that the share was sound again.
            Err(ReadError::Damaged { damage: Damage::Quarantined, .. }) if n == 9 => {
                assert_eq!(running.server.verify(&id(n)).unwrap(), length);
            }
            Err(error) => panic!("share {n} of {}: {error}", world.dir().display()),
        }
    }
}

/// Flips one bit at each of this many places, spread evenly.
fn sweep(store: &Store, file: &str, places: u64) -> BTreeMap<Shown, u32> {
    let bits = fs::metadata(store.dir.join(file)).unwrap().len() * 8;
    let mut random = Random(bits);
    let mut shown = BTreeMap::new();
    for place in 0..places.min(bits) {
        let bit = (place * bits / places + random.below((bits / places).max(1))).min(bits - 1);
        let outcome = std::panic::catch_unwind(|| flip(store, Path::new(file), bit));
        match outcome {
            Ok(how) => *shown.entry(how).or_default() += 1,
            Err(panic) => {
                eprintln!("{file}: bit {} of byte {}", bit % 8, bit / 8);
                std::panic::resume_unwind(panic);
            }
        }
    }
    eprintln!("{file}: {places} places of {} bytes: {shown:?}", bits / 8);
    shown
}

#[test]
fn a_bit_flips_in_the_database() {
    let (_world, store) = store(true);
    let shown = sweep(&store, "leases.sqlite", 500);
    assert!(shown.contains_key(&Shown::Noticed) && shown.contains_key(&Shown::Rebuilt), "{shown:?}");
}

#[test]
fn a_bit_flips_in_the_log_of_a_crashed_server() {
    let (_world, store) = store(false);
    let shown = sweep(&store, "leases.sqlite-wal", 300);
    assert!(shown.contains_key(&Shown::Rebuilt), "{shown:?}");
    sweep(&store, "leases.sqlite", 40);
}

#[test]
fn a_bit_flips_in_a_share_or_a_small_file() {
    let (_world, store) = store(true);
    for n in [6, 13, 20] {
        let name = crate::share::file_name(&id(n));
        let shown = sweep(&store, &format!("shares/{}/{name}", &name[..2]), 40);
        assert_eq!(shown.keys().collect::<Vec<_>>(), [&Shown::ShareDamaged]);
    }
    for file in ["format", "epoch"] {
        sweep(&store, file, 16);
    }
}
