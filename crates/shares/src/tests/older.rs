//! A database of the first version goes on.

use rusqlite::{Connection, params};

use super::{ME, World, body, check_quiet, id};
use crate::{AccountId, Health, ShareId, digest, schema::APPLICATION_ID};

/// What the first version of this program made.
const SCHEMA_1: &str = include_str!("schema-1.sql");

/// Makes the database of `world` into one of version 1 with the same shares.
fn make_older(world: &World, leases: &[(ShareId, i64, Option<i64>)], rebuilding: bool) {
    let path = world.dir().join("leases.sqlite");
    let shares: Vec<(ShareId, u32)> = {
        let running = world.open();
        let mut shares = Vec::new();
        let look = |share: &crate::StoredShare| {
            shares.push((share.id, share.length));
            std::ops::ControlFlow::Continue(())
        };
        running.server.for_each_share(look).unwrap();
        shares
    };
    std::fs::remove_file(&path).unwrap();
    let older = Connection::open(&path).unwrap();
    older.pragma_update(None, "journal_mode", "WAL").unwrap();
    older.execute_batch(SCHEMA_1).unwrap();
    older.pragma_update(None, "application_id", APPLICATION_ID).unwrap();
    older.pragma_update(None, "user_version", 1).unwrap();
    let now = i64::try_from(world.now()).unwrap();
    older.execute("UPDATE meta SET value = ?1 WHERE name = 'wall_clock'", [now]).unwrap();
    older.execute("UPDATE meta SET value = 5 WHERE name = 'epoch'", []).unwrap();
    if !rebuilding {
        older.execute("DELETE FROM meta WHERE name = 'rebuild'", []).unwrap();
    }
    older.execute("INSERT INTO accounts (name, created_at) VALUES ('group-1', 7)", []).unwrap();
    for (id, length) in shares {
        let number = u64::from_be_bytes(id.0[8..].try_into().unwrap());
        let values = params![id.0, length, digest(&body(number)), now];
        let sql = "INSERT INTO shares (share, state, length, used_space, digest, changed_at, unleased_since)
            VALUES (?1, 1, ?2, ?2 + 128, ?3, ?4, ?4)";
        older.execute(sql, values).unwrap();
    }
    for (share, account, expires_at) in leases {
        let values = params![share.0, account, now, expires_at];
        older.execute("INSERT INTO leases VALUES (?1, 0, ?2, ?3, ?4)", values).unwrap();
    }
}

#[test]
fn a_database_of_the_first_version_goes_on() {
    let world = World::new();
    let running = world.open();
    for n in 1..=4 {
        running.store(&[(id(n), &body(n))], ME).unwrap();
    }
    drop(running);
    make_older(&world, &[(id(1), 2, None), (id(1), 0, Some(9_000_000)), (id(2), 0, None)], false);
    let running = world.open();
    let server = &running.server;
    check_quiet(&world, &running);
    let group = server.account("group-1").unwrap();
    assert_eq!(group, AccountId(2));
    let leases = |n| -> Vec<_> {
        server.leases_of(&id(n)).unwrap().iter().map(|lease| (lease.account, lease.expires_at)).collect()
    };
    assert_eq!(leases(1), [(ME, Some(9_000_000)), (group, None)]);
    assert_eq!(leases(2), [(ME, None)]);
    assert_eq!(server.usage(group).unwrap().bytes, body(1).len() as u64);
    assert_eq!(server.suspended().unwrap(), None);
    for n in 1..=4 {
        assert_eq!(running.read_all(&id(n)).unwrap(), body(n));
        assert_eq!(server.share(&id(n)).unwrap().unwrap().health, Health::Ok);
    }
    world.advance(100);
    server.reap().unwrap();
    assert_eq!(super::files(&world.dir()).0, [id(1), id(2)], "grace went on where it was");
    server.scrub().unwrap();
    assert_eq!(server.suspended().unwrap(), None);
}

#[test]
fn a_database_of_the_first_version_that_was_being_rebuilt_is_rebuilt() {
    let world = World::new();
    world.open().store(&[(id(1), &body(1)), (id(2), &body(2))], ME).unwrap();
    make_older(&world, &[(id(1), 0, None)], true);
    let running = world.open();
    for n in [1, 2] {
        assert!(running.server.leases_of(&id(n)).unwrap().iter().any(|l| l.account == AccountId::STARTER));
    }
    check_quiet(&world, &running);
}
