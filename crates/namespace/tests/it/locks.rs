//! Tables of locks, compared with POSIX' rules for single bytes.

use crate::tree::{HERE, Tree, at, decide_proved};
use ident::FileId;
use namespace::{
    Attributes, Error, FileKind, Holder, LOCKS_MAX, Lock, LockChange, LockKind, LockRange, LockSpace,
    LockTable, Operation, Verdict, operation,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Bytes of the model. The last one stands for all that follow.
const BYTES: u64 = 12;

/// The lock of each byte.
type Bytes = [Option<LockKind>; BYTES as usize];

/// The locks of each owner (of each session), byte by byte.
#[derive(Clone, Debug, Default, PartialEq)]
struct Naive(BTreeMap<(LockSpace, (u64, u64)), Bytes>);

impl Naive {
    fn bytes(range: LockRange) -> impl Iterator<Item = usize> {
        (range.first..=range.last.min(BYTES - 1)).map(|byte| byte as usize)
    }

    fn may(&self, session: u64, change: &LockChange) -> bool {
        let Some(kind) = change.kind else { return true };
        self.0.iter().all(|((space, holder), bytes)| {
            *space != change.space
                || *holder == (session, change.owner)
                || Naive::bytes(change.range).all(|byte| match bytes[byte] {
                    Some(LockKind::Write) => false,
                    Some(LockKind::Read) => kind == LockKind::Read,
                    None => true,
                })
        })
    }

    fn set(&mut self, session: u64, change: &LockChange) {
        let bytes = self.0.entry((change.space, (session, change.owner))).or_default();
        Naive::bytes(change.range).for_each(|byte| bytes[byte] = change.kind);
        self.0.retain(|_, bytes| bytes.iter().any(Option::is_some));
    }

    /// The same locks in as few pieces as possible.
    fn table(&self) -> Vec<(LockSpace, (u64, u64), LockRange, LockKind)> {
        let mut pieces = Vec::new();
        for ((space, holder), bytes) in &self.0 {
            let mut byte = 0;
            while byte < BYTES {
                let kind = bytes[byte as usize];
                let first = byte;
                while byte < BYTES && bytes[byte as usize] == kind {
                    byte += 1;
                }
                let last = if byte == BYTES { u64::MAX } else { byte - 1 };
                pieces.extend(kind.map(|kind| (*space, *holder, LockRange { first, last }, kind)));
            }
        }
        pieces
    }
}

fn pieces(table: &LockTable<(u64, u64)>) -> Vec<(LockSpace, (u64, u64), LockRange, LockKind)> {
    table.iter().map(|lock| (lock.space, lock.holder, lock.range, lock.kind)).collect()
}

fn changes() -> impl Strategy<Value = Vec<(u64, LockChange)>> {
    let space = prop_oneof![Just(LockSpace::Posix), Just(LockSpace::Posix), Just(LockSpace::Flock)];
    let kind = prop_oneof![Just(None), Just(Some(LockKind::Read)), Just(Some(LockKind::Write))];
    let change = (0..3u64, 0..3u64, space, 0..BYTES, 0..BYTES, kind).prop_map(
        |(session, owner, space, a, b, kind)| {
            let last = if a.max(b) == BYTES - 1 { u64::MAX } else { a.max(b) };
            let range = LockRange { first: a.min(b), last };
            (session, LockChange { owner, pid: 7, space, range, kind })
        },
    );
    proptest::collection::vec(change, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn a_table_says_of_each_byte_what_posix_says(changes in changes()) {
        let (mut table, mut naive) = (LockTable::default(), Naive::default());
        for (session, change) in changes {
            let conflict = change.kind.and_then(|kind| {
                table.conflict(change.space, &(session, change.owner), change.range, kind)
            });
            prop_assert_eq!(conflict.is_none(), naive.may(session, &change));
            let seen = table.seen_by(&session);
            prop_assert_eq!(seen.in_the_way(&change).next().is_none(), conflict.is_none());
            prop_assert_eq!(seen.len(), table.len());
            if conflict.is_none() {
                let before = table.clone();
                table.change(&session, &change);
                naive.set(session, &change);
                prop_assert_eq!(seen.has(&change), before == table);
                // The holder of the lease changes its view, and the server its table. The two stay
                // in step.
                let mut seen = seen;
                seen.change(&change);
                prop_assert_eq!(seen, table.seen_by(&session));
            }
            prop_assert_eq!(pieces(&table), naive.table());
            let row = postcard::to_allocvec(&table).unwrap();
            prop_assert_eq!(postcard::from_bytes::<LockTable<(u64, u64)>>(&row).unwrap(), table.clone());
        }
    }

    /// The changes that are logged when a lease goes bring the server's table to the machine's
    /// state. Each step can be decided.
    #[test]
    fn changes_in_between_can_be_left_out(before in changes(), after in changes()) {
        let mut table = LockTable::default();
        let go = |table: &mut LockTable<(u64, u64)>, session, change: &LockChange| {
            let holder = (session, change.owner);
            let free = change.kind.is_none_or(|kind| {
                table.conflict(change.space, &holder, change.range, kind).is_none()
            });
            if free {
                table.change(&session, change);
            }
        };
        for (session, change) in &before {
            go(&mut table, *session, change);
        }
        let (mut later, most) = (table.clone(), table.len());
        for (_, change) in &after {
            go(&mut later, 0, change);
        }
        let (from, to) = (table.seen_by(&0), later.seen_by(&0));
        for change in to.changes_since(&from) {
            prop_assert!(table.seen_by(&0).in_the_way(&change).next().is_none());
            table.change(&0, &change);
            prop_assert!(table.len() <= most.max(later.len()));
        }
        prop_assert_eq!(table, later);
    }
}

const fn range(first: u64, last: u64) -> LockRange {
    LockRange { first, last }
}

fn lock(owner: u64, range: LockRange, kind: LockKind) -> Lock<u64> {
    Lock { space: LockSpace::Posix, holder: owner, range, kind, pid: 1 }
}

#[test]
fn a_row_in_another_form_or_with_a_conflict_is_refused() {
    use LockKind::{Read, Write};
    let sound = [lock(1, range(0, 3), Read), lock(1, range(4, 4), Write), lock(2, range(0, 3), Read)];
    let refused = |locks: &[Lock<u64>]| {
        let row = postcard::to_allocvec(&locks.to_vec()).unwrap();
        postcard::from_bytes::<LockTable<u64>>(&row).is_err()
    };
    assert!(!refused(&sound));
    assert!(refused(&[sound[2].clone(), sound[0].clone()]), "out of order");
    assert!(refused(&[lock(1, range(0, 3), Read), lock(1, range(4, 5), Read)]), "two that are one");
    assert!(refused(&[lock(1, range(0, 3), Read), lock(1, range(3, 5), Write)]), "two of one holder overlap");
    assert!(refused(&[lock(1, range(3, 2), Read)]), "nothing in it");
    let conflicts = [lock(1, range(0, 9), Read), lock(2, range(0, 1), Read), lock(3, range(9, 9), Write)];
    assert!(refused(&conflicts), "a conflict, far from its neighbour");
}

/// All others show as one owner without a number. Each of their locks still counts.
#[test]
fn of_others_it_shows_that_a_range_is_locked_and_how() {
    let mut table: LockTable<(u64, u64)> = LockTable::default();
    let set = |table: &mut LockTable<_>, session: u64, owner, range, kind| {
        let change = LockChange { owner, pid: 99, space: LockSpace::Posix, range, kind: Some(kind) };
        table.change(&session, &change);
    };
    set(&mut table, 1, 10, range(0, 0), LockKind::Read);
    for session in 2..5 {
        set(&mut table, session, session, range(0, 9), LockKind::Read);
    }
    let mut one: LockTable<(u64, u64)> = LockTable::default();
    set(&mut one, 1, 10, range(0, 0), LockKind::Read);
    set(&mut one, 8, 77, range(0, 9), LockKind::Read);
    let (of_many, of_one) = (table.seen_by(&1), one.seen_by(&1));
    assert_eq!((of_many.len(), of_one.len()), (4, 2));
    let conflict = of_many.conflict(LockSpace::Posix, 10, range(5, 5), LockKind::Write).unwrap();
    assert_eq!((conflict.range, conflict.pid), (range(0, 9), None));
    assert_eq!(of_one.conflict(LockSpace::Posix, 10, range(5, 5), LockKind::Write), Some(conflict));
    let write = |owner| LockChange {
        owner,
        pid: 1,
        space: LockSpace::Posix,
        range: range(0, 0),
        kind: Some(LockKind::Write),
    };
    assert_eq!(of_one.in_the_way(&write(10)).collect::<Vec<_>>(), [Holder::Elsewhere]);
    assert_eq!(of_one.in_the_way(&write(11)).collect::<Vec<_>>(), [Holder::Here(10), Holder::Elsewhere]);
    assert_eq!(of_one.conflict(LockSpace::Flock, 10, LockRange::WHOLE, LockKind::Write), None);
}

#[test]
fn a_file_has_so_many_locks_and_no_more() {
    let every_other = |n: u64| LockChange {
        owner: 1,
        pid: 1,
        space: LockSpace::Posix,
        range: range(2 * n, 2 * n),
        kind: Some(LockKind::Write),
    };
    let (mut tree, root) = (Tree::new(root()), FileId::root());
    let decide = |tree: &Tree, change| match decide_proved(
        tree,
        &Operation::Lock(operation::Lock { file: root.clone(), change }),
    ) {
        Verdict::Done { .. } => Ok(()),
        Verdict::Refused { error, .. } => Err(error),
        Verdict::Unknown { wants } => panic!("{wants:?}"),
    };
    for n in 0..LOCKS_MAX as u64 - 1 {
        tree.files.get_mut(&root).unwrap().locks.change(&HERE, &every_other(n));
    }
    let last = every_other(LOCKS_MAX as u64);
    assert_eq!(decide(&tree, last), Ok(()));
    tree.files.get_mut(&root).unwrap().locks.change(&HERE, &last);
    let more = every_other(LOCKS_MAX as u64 + 5);
    assert_eq!(decide(&tree, more), Err(Error::TooManyLocks));
    // A change that adds no lock still succeeds.
    assert_eq!(decide(&tree, LockChange { range: range(1, 1), ..more }), Ok(()));
    assert_eq!(decide(&tree, LockChange { kind: None, ..every_other(7) }), Ok(()));
}

fn root() -> Attributes {
    let (kind, time) = (FileKind::Directory, at(1));
    let (ctime, btime, atime) = (time, time, time);
    Attributes { kind, mode: 0o755, uid: 0, gid: 0, links: 1, ino: 1, rdev: 0, ctime, btime, atime }
}
