//! Locks on several machines, under one oracle. Two conflicting locks are never held; a waiting
//! call has a conflicting lock in its way. The cost in messages is counted.
//!
//! The oracle knows no leases and no tables. It remembers, byte by byte, which locks each owner was
//! granted.

mod costs;
pub(crate) mod machines;
mod oracle;

use crate::cluster::Violation;
use client::{Call, Outcome, Reply, call};
use machines::{FILES, Machines};
use namespace::{Cred, Error, LockChange, LockKind, LockRange, LockSpace};
use oracle::{BYTES, Pending, SPACES};

/// Number of owners on each machine.
const OWNERS: u64 = 3;
/// Events within which everything must come to rest once nothing new happens.
const REST_MAX: u32 = 20_000;

/// Counts of events, to show that a run had some.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    locked: u64,
    refused: u64,
    waited: u64,
    cancelled: u64,
    deadlocks: u64,
    ends: u64,
    restarts: u64,
    breaks: u64,
    blocked_at_rest: u64,
}

fn run(seed: u64, tally: &mut Tally) -> Result<(), Violation> {
    let count = 2 + seed % 3;
    let mut machines = Machines::new(seed, count)?;
    machines.faults = !seed.is_multiple_of(3);
    for _ in 0..400 {
        step(&mut machines, tally)?;
    }
    wind_down(&mut machines, tally)?;
    tally.ends += machines.ends;
    tally.restarts += machines.restarts;
    tally.breaks += machines.breaks;
    Ok(())
}

fn step(machines: &mut Machines, tally: &mut Tally) -> Result<(), Violation> {
    let at = machines.below(machines.len()) as usize;
    match machines.below(24) {
        0..8 => machines.server_receives(at)?,
        8..16 => machines.client_receives(at)?,
        16..21 => begin(machines, at, tally)?,
        21 => machines.pass_time(2_000)?,
        22 => machines.background()?,
        _ => machines.fault(at)?,
    }
    take_answers(machines, tally)
}

/// An owner locks or unlocks a range, or cancels a waiting call.
fn begin(machines: &mut Machines, at: usize, tally: &mut Tally) -> Result<(), Violation> {
    let owner = machines.below(OWNERS);
    if machines.is_frozen(at) {
        return Ok(());
    }
    if let Some(Pending { ticket: Some(ticket), .. }) = machines.oracle.pending(at, owner) {
        let ticket = *ticket;
        // While an owner waits to raise a lock of a whole file, it may or may not have released the
        // old lock. The oracle cannot know which, so it cancels no such call.
        if machines.below(6) == 0 && !machines.oracle.is_raising(at, owner) {
            tally.cancelled += 1;
            machines.cancel(at, ticket)?;
        }
        return Ok(());
    }
    let file = machines.below(FILES as u64) as usize;
    let space = SPACES[usize::from(machines.below(3) == 0)];
    let (a, b) = (machines.below(BYTES as u64), machines.below(BYTES as u64));
    let last = if a.max(b) == BYTES as u64 - 1 { u64::MAX } else { a.max(b) };
    let range = match space {
        LockSpace::Posix => LockRange { first: a.min(b), last },
        LockSpace::Flock => LockRange::WHOLE,
    };
    let kind = match machines.below(6) {
        0..2 => Some(LockKind::Write),
        2..4 => Some(LockKind::Read),
        _ => None,
    };
    let wait = machines.below(2) == 0;
    lock(machines, at, file, LockChange { owner, pid: 1, space, range, kind }, wait, tally)
}

fn lock(
    machines: &mut Machines,
    at: usize,
    file: usize,
    change: LockChange,
    wait: bool,
    tally: &mut Tally,
) -> Result<(), Violation> {
    let call = Call::Lock(call::Lock { file: machines.file(file), change, wait });
    machines.oracle.begins(at, Pending { file, change, wait, ticket: None });
    match machines.call(at, &Cred::default(), call)? {
        Outcome::Done(result) => answered(machines, at, change.owner, result, tally),
        Outcome::Waiting(ticket) => {
            tally.waited += 1;
            machines.oracle.waits(at, change.owner, ticket);
            take_answers(machines, tally)
        }
    }
}

fn take_answers(machines: &mut Machines, tally: &mut Tally) -> Result<(), Violation> {
    while let Some((at, ticket, result)) = machines.answers.pop_front() {
        if let Some(owner) = machines.oracle.owner_of(at, ticket) {
            answered(machines, at, owner, result, tally)?;
        }
    }
    Ok(())
}

fn answered(
    machines: &mut Machines,
    at: usize,
    owner: u64,
    result: Result<Reply, Error>,
    tally: &mut Tally,
) -> Result<(), Violation> {
    match &result {
        Ok(_) => tally.locked += 1,
        Err(Error::WouldBlock) => tally.refused += 1,
        Err(Error::Deadlock) => tally.deadlocks += 1,
        Err(Error::Interrupted | Error::CutOff) => {}
        Err(error) => return Err(format!("locking is refused: {error}")),
    }
    machines.oracle.ends(at, owner, result.is_ok())
}

/// Runs until everything has come to rest; nothing new happens meanwhile.
fn rest(machines: &mut Machines, tally: &mut Tally) -> Result<(), Violation> {
    machines.thaw();
    let mut quiet = 0;
    for _ in 0..REST_MAX {
        let at = machines.below(machines.len()) as usize;
        machines.server_receives(at)?;
        machines.client_receives(at)?;
        machines.background()?;
        if machines.is_idle() {
            quiet += 1;
            machines.pass_time(6_000)?;
        }
        take_answers(machines, tally)?;
        if quiet > 30 && machines.is_idle() {
            return machines.check_at_rest();
        }
    }
    Err("does not come to rest".to_owned())
}

/// Checks that every waiting call at rest has a conflicting lock in its way. Then all other owners
/// unlock, and calls that wait for each other are cancelled. At the end nothing is locked and no
/// call waits.
fn wind_down(machines: &mut Machines, tally: &mut Tally) -> Result<(), Violation> {
    rest(machines, tally)?;
    for round in 0.. {
        tally.blocked_at_rest += machines.oracle.check_waits()?;
        for at in 0..machines.len() as usize {
            for owner in 0..OWNERS {
                for (file, space) in (0..FILES).flat_map(|file| SPACES.map(|space| (file, space))) {
                    if machines.oracle.pending(at, owner).is_none() {
                        let range = LockRange::WHOLE;
                        let change = LockChange { owner, pid: 1, space, range, kind: None };
                        lock(machines, at, file, change, false, tally)?;
                    }
                }
            }
        }
        rest(machines, tally)?;
        match machines.oracle.some_ticket() {
            Some((at, ticket)) => machines.cancel(at, ticket)?,
            None if machines.oracle.is_empty() => return Ok(()),
            None if round > 100 => return Err(format!("something stays locked: {:?}", machines.oracle)),
            None => {}
        }
        take_answers(machines, tally)?;
    }
    Ok(())
}

#[test]
fn locks_of_several_machines_go_together_and_nobody_waits_for_nothing() {
    let mut tally = Tally::default();
    for seed in 0..600 {
        run(seed, &mut tally).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
    // Runs without events prove nothing.
    println!("{tally:?}");
    let Tally { locked, refused, waited, cancelled, deadlocks, ends, restarts, breaks, blocked_at_rest } =
        tally;
    assert!(locked > 5_000 && refused > 2_000 && waited > 5_000 && cancelled > 300, "{tally:?}");
    assert!(
        deadlocks > 20 && ends > 200 && restarts > 100 && breaks > 500 && blocked_at_rest > 100,
        "{tally:?}"
    );
}
