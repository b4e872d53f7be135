//! The cost of locking, in messages.

use super::machines::Machines;
use client::{Call, Outcome, Reply, call};
use namespace::{Conflict, Cred, LockChange, LockKind, LockRange, LockSpace};

const READ: Option<LockKind> = Some(LockKind::Read);
const WRITE: Option<LockKind> = Some(LockKind::Write);

fn machines(count: u64) -> Machines {
    Machines::new(3, count)
}

impl Machines {
    fn locks(&mut self, at: usize, owner: u64, (first, last): (u64, u64), kind: Option<LockKind>) {
        let change = change(owner, (first, last), kind);
        let call = Call::Lock(call::Lock { file: self.file(0), change, wait: false });
        let reply = self.host.does(at, call);
        assert!(matches!(reply, Reply::Nothing), "{reply:?}");
    }

    /// The lock that conflicts with owner 99.
    fn in_the_way(&mut self, at: usize) -> Option<Conflict> {
        let (space, range, kind) = (LockSpace::Posix, LockRange::WHOLE, LockKind::Write);
        let call = Call::GetLock(call::GetLock { file: self.file(0), owner: 99, space, range, kind });
        match self.host.does(at, call) {
            Reply::Lock(conflict) => conflict,
            other => panic!("{other:?}"),
        }
    }

    /// Asks for a lock; returns whether the call still waits after all messages have arrived.
    fn waits(&mut self, at: usize, owner: u64, range: (u64, u64), kind: Option<LockKind>) -> bool {
        let call =
            Call::Lock(call::Lock { file: self.file(0), change: change(owner, range, kind), wait: true });
        let Outcome::Waiting(ticket) = self.host.call(at, &Cred::default(), call).unwrap() else {
            return false;
        };
        self.host.deliver().unwrap();
        !self.host.answers().iter().any(|(machine, answered, _)| (*machine, *answered) == (at, ticket))
    }
}

/// The number of messages of `does`, in both directions.
fn cost(machines: &mut Machines, does: impl FnOnce(&mut Machines)) -> u64 {
    machines.cost(does).0
}

fn change(owner: u64, (first, last): (u64, u64), kind: Option<LockKind>) -> LockChange {
    LockChange {
        owner,
        pid: 1000 + owner as u32,
        space: LockSpace::Posix,
        range: LockRange { first, last },
        kind,
    }
}

/// The locks of one SQLite transaction (os_unix.c: the pending byte, the reserved byte, and 510
/// shared bytes after them).
fn transaction(machines: &mut Machines, at: usize) {
    let (pending, reserved, shared) = (0x4000_0000, 0x4000_0001, (0x4000_0002, 0x4000_01ff));
    machines.locks(at, 1, (pending, pending), READ);
    machines.locks(at, 1, shared, READ);
    machines.locks(at, 1, (pending, pending), None);
    machines.locks(at, 1, (reserved, reserved), WRITE);
    machines.locks(at, 1, (pending, pending), WRITE);
    machines.locks(at, 1, shared, WRITE);
    machines.locks(at, 1, shared, READ);
    machines.locks(at, 1, (pending, reserved), None);
    machines.locks(at, 1, (0, u64::MAX), None);
}

/// The server never learns of a lock on a machine without competitors, not even later.
#[test]
fn who_locks_alone_tells_nobody() {
    let mut machines = machines(2);
    transaction(&mut machines, 1);
    let before = machines.host.messages;
    for _ in 0..1_000 {
        transaction(&mut machines, 1);
    }
    assert_eq!(machines.host.messages, before);
    // Each machine renews its session in that time, and gets an answer.
    let cost = cost(&mut machines, |machines| {
        machines.host.pass_time(1).and_then(|()| machines.host.pass_time(9_000)).unwrap()
    });
    assert!(cost <= 4, "{cost}");
    // Even a permanent lock is reported only once another machine asks.
    machines.locks(1, 1, (0, 9), WRITE);
    assert!(machines.host.machines[1].client.locks_here(&machines.file(0)));
    let conflict = machines.in_the_way(0).unwrap();
    assert_eq!(
        (conflict.range, conflict.kind, conflict.pid),
        (LockRange { first: 0, last: 9 }, LockKind::Write, None)
    );
}

#[test]
fn a_second_try_that_fails_for_the_same_reason_asks_nobody() {
    let mut machines = machines(2);
    machines.locks(0, 1, (0, 9), WRITE);
    assert!(machines.in_the_way(1).is_some());
    let cost = cost(&mut machines, |machines| {
        for _ in 0..100 {
            assert!(machines.in_the_way(1).is_some());
            assert_eq!(machines.in_the_way(0).unwrap().pid, Some(1001));
        }
    });
    assert_eq!(cost, 0);
}

/// Two machines take turns with one lock.
#[test]
fn a_lock_changes_hands_for_a_few_messages() {
    let mut machines = machines(2);
    machines.locks(0, 1, (0, 0), WRITE);
    let mut costs = Vec::new();
    for round in 0..6 {
        let (has, wants) = (round % 2, 1 - round % 2);
        costs.push(cost(&mut machines, |machines| {
            assert!(machines.waits(wants, 1, (0, 0), WRITE));
            machines.locks(has, 1, (0, 0), None);
            machines.host.deliver().unwrap();
            assert!(!machines.waits(wants, 1, (0, 0), WRITE), "it has it");
        }));
    }
    println!("messages for each time that a lock changes hands: {costs:?}");
    assert!(costs.iter().skip(1).all(|cost| *cost <= 15), "{costs:?}");
}

/// Conflicting calls are served in the order of their arrival.
#[test]
fn those_who_wait_on_one_machine_stand_in_line() {
    let mut machines = machines(1);
    let before = machines.host.messages;
    machines.locks(0, 1, (0, 9), WRITE);
    assert!(machines.waits(0, 2, (0, 9), WRITE));
    assert!(machines.waits(0, 3, (0, 4), READ));
    assert!(machines.waits(0, 4, (5, 9), READ));
    machines.locks(0, 1, (5, 9), None);
    let answered = |machines: &Machines| machines.host.answers().len();
    // The first waiting call needs the whole range, the last one only a part that is free.
    assert_eq!(answered(&machines), 1);
    machines.locks(0, 1, (0, 9), None);
    assert_eq!(answered(&machines), 2, "two readers, and the writer waits for both");
    machines.locks(0, 3, (0, 9), None);
    machines.locks(0, 4, (0, 9), None);
    assert_eq!(answered(&machines), 3);
    assert_eq!(machines.host.messages, before, "the one machine holds everything");
}

#[test]
fn two_who_raise_a_lock_of_a_whole_file_do_not_wait_for_each_other() {
    let mut machines = machines(2);
    let flock =
        |owner, kind| LockChange { owner, pid: 1, space: LockSpace::Flock, range: LockRange::WHOLE, kind };
    let file = machines.file(0);
    for at in 0..2 {
        let call = Call::Lock(call::Lock { file: file.clone(), change: flock(1, READ), wait: true });
        machines.host.does(at, call);
    }
    let mut waiting = 0;
    for at in 0..2 {
        let call = Call::Lock(call::Lock { file: file.clone(), change: flock(1, WRITE), wait: true });
        waiting +=
            u32::from(matches!(machines.host.call(at, &Cred::default(), call).unwrap(), Outcome::Waiting(_)));
    }
    assert_eq!(waiting, 2);
    machines.host.deliver().unwrap();
    let [(winner, _, Ok(Reply::Nothing))] = machines.host.answers()[..] else {
        panic!("{:?}", machines.host.news)
    };
    let unlock = Call::Lock(call::Lock { file, change: flock(1, None), wait: false });
    machines.host.does(winner, unlock);
    machines.host.deliver().unwrap();
    assert_eq!(machines.host.answers().len(), 2);
}

/// POSIX: "if the system detects" it. A single machine detects the deadlock.
#[test]
fn who_would_wait_for_itself_is_told() {
    let mut machines = machines(1);
    machines.locks(0, 1, (0, 0), WRITE);
    machines.locks(0, 2, (1, 1), WRITE);
    machines.locks(0, 3, (2, 2), READ);
    assert!(machines.waits(0, 1, (1, 1), READ));
    assert!(machines.waits(0, 2, (2, 2), WRITE));
    let call =
        Call::Lock(call::Lock { file: machines.file(0), change: change(3, (0, 0), WRITE), wait: true });
    assert_eq!(machines.host.tries(0, call).err(), Some(namespace::Error::Deadlock));
    machines.locks(0, 3, (2, 2), None);
    assert_eq!(machines.host.answers().len(), 1);
}
