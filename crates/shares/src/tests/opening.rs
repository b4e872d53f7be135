//! Databases that are missing, damaged, old or new: no share is lost, and leases are rebuilt
//! (leasedb, "Fail-safe").

use std::fs;

use super::{ME, Medium, World, body, check_quiet, everywhere, id, release_now};
use crate::{AccountId, Damage, HeaderError, Health, OpenError, ReadError};

everywhere! {
    a_missing_database_is_rebuilt,
    a_log_without_its_database_is_not_replayed_into_the_new_one,
    an_emptied_database_is_rebuilt,
    a_truncated_database_is_rebuilt,
    garbage_for_a_database_is_rebuilt,
    corruption_found_while_running_is_looked_into_at_the_next_start,
    a_newer_schema_or_layout_is_refused,
    a_database_restored_from_a_backup_loses_no_share,
    a_database_whose_count_of_openings_cannot_be_read_is_taken_for_a_restored_one,
    discovery_keeps_damaged_files_in_quarantine_and_leaves_strange_ones_alone,
    a_directory_is_served_once,
}

const STARTER_SECONDS: u64 = 60 * 24 * 3600;

fn with_two_shares(on: Medium) -> World {
    let world = World::on(on);
    let running = world.open();
    running.store(&[(id(5), &body(5)), (id(6), &body(6))], ME).unwrap();
    world
}

/// Checks that both shares are there under starter leases, and that the old database has been kept.
fn check_rebuilt(world: &World, kept: bool) {
    let running = world.open();
    running.server.reap().unwrap();
    for n in [5, 6] {
        assert_eq!(running.read_all(&id(n)).unwrap(), body(n));
        let leases = running.server.leases_of(&id(n)).unwrap();
        assert_eq!(leases.len(), 1);
        assert_eq!(
            (leases[0].account, leases[0].expires_at),
            (AccountId::STARTER, Some(world.now() + STARTER_SECONDS))
        );
    }
    check_quiet(world, &running);
    let quarantined = fs::read_dir(world.dir())
        .unwrap()
        .filter(|e| e.as_ref().unwrap().file_name().to_str().unwrap().starts_with("leases.sqlite.quarantine"))
        .count();
    assert_eq!(quarantined > 0, kept);
    // Leases work as before.
    assert_eq!(running.server.lease(ME, &[id(5)], None).unwrap(), [id(5)]);
}

fn a_missing_database_is_rebuilt(on: Medium) {
    let world = with_two_shares(on);
    fs::remove_file(world.dir().join("leases.sqlite")).unwrap();
    check_rebuilt(&world, false);
}

fn a_log_without_its_database_is_not_replayed_into_the_new_one(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    running.store(&[(id(5), &body(5)), (id(6), &body(6))], ME).unwrap();
    for name in ["leases.sqlite", "leases.sqlite-wal"] {
        fs::copy(world.dir().join(name), world.dir().join(format!("{name}.copy"))).unwrap();
    }
    drop(running);
    fs::remove_file(world.dir().join("leases.sqlite")).unwrap();
    fs::rename(world.dir().join("leases.sqlite-wal.copy"), world.dir().join("leases.sqlite-wal")).unwrap();
    check_rebuilt(&world, false);
}

fn an_emptied_database_is_rebuilt(on: Medium) {
    let world = with_two_shares(on);
    fs::write(world.dir().join("leases.sqlite"), b"").unwrap();
    check_rebuilt(&world, true);
}

fn a_truncated_database_is_rebuilt(on: Medium) {
    let world = with_two_shares(on);
    let path = world.dir().join("leases.sqlite");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2 / 4096 * 4096]).unwrap();
    check_rebuilt(&world, true);
}

fn garbage_for_a_database_is_rebuilt(on: Medium) {
    let world = with_two_shares(on);
    fs::write(world.dir().join("leases.sqlite"), [0x5a; 9000]).unwrap();
    check_rebuilt(&world, true);
}

fn corruption_found_while_running_is_looked_into_at_the_next_start(on: Medium) {
    let world = with_two_shares(on);
    let path = world.dir().join("leases.sqlite");
    let sound = fs::read(&path).unwrap();
    // Opening does not read these pages, which belong to the table of leases.
    let rest = corrupt_leases(&sound);
    fs::write(&path, &rest).unwrap();
    let running = world.open();
    running.server.lease(ME, &[id(5)], None).unwrap_err();
    assert_eq!(running.read_all(&id(5)).unwrap(), body(5), "shares are served all the same");
    drop(running);
    check_rebuilt(&world, true);
}

/// Overwrites the root page of the table of leases.
fn corrupt_leases(database: &[u8]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy");
    fs::write(&path, database).unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let page: usize = connection
        .query_row("SELECT rootpage FROM sqlite_schema WHERE name = 'leases'", [], |row| row.get(0))
        .unwrap();
    let mut bytes = database.to_vec();
    bytes[(page - 1) * 4096..page * 4096].fill(0xee);
    bytes
}

fn a_newer_schema_or_layout_is_refused(on: Medium) {
    let world = with_two_shares(on);
    let connection = rusqlite::Connection::open(world.dir().join("leases.sqlite")).unwrap();
    connection.pragma_update(None, "user_version", 2).unwrap();
    drop(connection);
    let error = world.try_open(None).err().unwrap();
    assert!(matches!(error, OpenError::Newer { found: 2, .. }), "{error}");
    assert!(error.to_string().contains("use a newer one"), "{error}");
    fs::write(world.dir().join("format"), "leasehold shares 9\n").unwrap();
    assert!(matches!(world.try_open(None), Err(OpenError::Newer { found: 9, .. })));
    fs::write(world.dir().join("format"), "something else").unwrap();
    assert!(matches!(world.try_open(None), Err(OpenError::Foreign { .. })));
    assert_eq!(world.files().0, [id(5), id(6)]);
}

/// The state after a power cut in the first start (tests/e2e/power-cut.sh): journal_mode was set,
/// and no table was made yet.
#[test]
fn a_database_cut_off_before_its_first_table_is_made_anew() {
    let world = World::new();
    fs::create_dir(world.dir()).unwrap();
    let path = world.dir().join("leases.sqlite");
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "journal_mode", "wal").unwrap();
    assert!(fs::metadata(&path).unwrap().len() > 0);
    assert!(world.try_open(None).is_ok());
}

#[test]
fn somebody_elses_database_is_left_alone() {
    let world = World::new();
    fs::create_dir(world.dir()).unwrap();
    let path = world.dir().join("leases.sqlite");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
    assert!(matches!(world.try_open(None), Err(OpenError::Foreign { .. })));
    let connection = rusqlite::Connection::open(&path).unwrap();
    assert_eq!(
        connection.query_row("SELECT count(*) FROM theirs", [], |row| row.get::<_, i64>(0)).unwrap(),
        0
    );
}

fn a_database_restored_from_a_backup_loses_no_share(on: Medium) {
    let world = with_two_shares(on);
    let path = world.dir().join("leases.sqlite");
    let backup = fs::read(&path).unwrap();
    let running = world.open();
    running.store(&[(id(7), &body(7))], ME).unwrap();
    release_now(&running, &[id(5)]);
    running.server.reap().unwrap();
    drop(running);
    fs::write(&path, backup).unwrap();
    let running = world.open();
    running.server.reap().unwrap();
    let accounts = |n| -> Vec<_> {
        running.server.leases_of(&id(n)).unwrap().iter().map(|lease| lease.account).collect()
    };
    assert_eq!(running.read_all(&id(7)).unwrap(), body(7), "newer than the backup");
    assert_eq!(accounts(7), [AccountId::STARTER]);
    assert_eq!(accounts(6), [ME, AccountId::STARTER], "the old lease is kept");
    assert_eq!(running.server.share(&id(5)).unwrap().unwrap().health, Health::Missing, "deleted since");
    drop(running);
    assert_eq!(world.open().server.leases_of(&id(6)).unwrap().len(), 2);
}

fn a_database_whose_count_of_openings_cannot_be_read_is_taken_for_a_restored_one(on: Medium) {
    for damaged in [&b""[..], b"x\n", b"\xff\xfe\n", b"99999999999999999999\n"] {
        let world = with_two_shares(on);
        fs::write(world.dir().join("epoch"), damaged).unwrap();
        for start in 0..2 {
            let running = world.open();
            running.server.reap().unwrap();
            let leases = running.server.leases_of(&id(6)).unwrap();
            let accounts: Vec<_> = leases.iter().map(|lease| lease.account).collect();
            assert_eq!(accounts, [ME, AccountId::STARTER], "{damaged:?}, start {start}");
        }
    }
}

fn discovery_keeps_damaged_files_in_quarantine_and_leaves_strange_ones_alone(on: Medium) {
    let world = with_two_shares(on);
    fs::remove_file(world.dir().join("leases.sqlite")).unwrap();
    let sound = world.file(&id(5)).unwrap();
    world.write_file(&id(5), &sound[..100]);
    world.set_stranger(true);
    let running = world.open();
    running.server.reap().unwrap();
    let row = running.server.share(&id(5)).unwrap().unwrap();
    assert_eq!((row.health, row.leases, row.digest), (Health::Corrupt, 1, None));
    assert!(matches!(
        running.server.read(&id(5), 0, 1),
        Err(ReadError::Damaged { damage: Damage::Header(HeaderError::Short), .. })
    ));
    assert_eq!(running.read_all(&id(6)).unwrap(), body(6));
    // The share has one lease, and its length counts from the moment when it is known.
    running.store(&[(id(5), &body(5))], ME).unwrap();
    assert_eq!(running.read_all(&id(5)).unwrap(), body(5));
    world.set_stranger(false);
    check_quiet(&world, &running);
}

fn a_directory_is_served_once(on: Medium) {
    let world = World::on(on);
    let running = world.open();
    assert!(matches!(world.try_open(None), Err(OpenError::InUse(_))));
    drop(running);
    world.open();
}
