//! Locks on several machines, under one oracle. Two conflicting locks are never held; a waiting
//! call has a conflicting lock in its way. The cost in messages is counted.
//!
//! The oracle knows no leases and no tables. It remembers, byte by byte, which locks each owner was
//! granted.

mod costs;
pub(crate) mod machines;
mod oracle;

use crate::host::{News, Violation};
use client::{Call, Outcome, Reply, call};
use machines::{FILES, Machines};
use namespace::{Cred, Error, LockChange, LockKind, LockRange, LockSpace};
use oracle::{BYTES, Oracle, Pending, SPACES};

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

/// Owners of locks on machines that fail.
struct Locking {
    machines: Machines,
    oracle: Oracle,
    faults: bool,
    tally: Tally,
}

/// Runs a seed, and adds to the counts.
fn run(seed: u64, tally: Tally) -> Result<Tally, Violation> {
    let (machines, faults) = (Machines::new(seed, 2 + seed % 3), !seed.is_multiple_of(3));
    let mut locking = Locking { machines, faults, oracle: Oracle::default(), tally };
    for _ in 0..400 {
        locking.step()?;
    }
    locking.wind_down()?;
    Ok(locking.tally)
}

impl Locking {
    fn below(&mut self, bound: u64) -> u64 {
        self.machines.host.below(bound)
    }

    fn step(&mut self) -> Result<(), Violation> {
        let host = &mut self.machines.host;
        let at = host.some_machine();
        match host.below(24) {
            0..8 => host.server_receives(at)?,
            8..16 => host.client_receives(at)?,
            16..21 => self.begin(at)?,
            21 => host.pass_time(2_000)?,
            22 => host.background()?,
            _ => self.fault(at)?,
        }
        self.hear()
    }

    fn fault(&mut self, at: usize) -> Result<(), Violation> {
        let host = &mut self.machines.host;
        match host.below(24) {
            _ if !self.faults => {}
            0 => {
                self.tally.restarts += 1;
                host.restart()?;
            }
            1 => {
                (self.tally.ends, self.tally.breaks) = (self.tally.ends + 1, self.tally.breaks + 1);
                self.oracle.forget(at);
                host.stop(at)?;
            }
            2 => host.machines[at].frozen = true,
            // Long enough for a session to lapse.
            3 => host.pass_time(60_000)?,
            4..8 => host.machines[at].frozen = false,
            8..10 => {
                self.tally.breaks += 1;
                host.break_connection(at)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// An owner locks or unlocks a range, or cancels a waiting call.
    fn begin(&mut self, at: usize) -> Result<(), Violation> {
        let owner = self.below(OWNERS);
        if self.machines.host.machines[at].frozen {
            return Ok(());
        }
        if let Some(Pending { ticket: Some(ticket), .. }) = self.oracle.pending(at, owner) {
            let ticket = *ticket;
            // While an owner waits to raise a lock of a whole file, it may or may not have released
            // the old lock. The oracle cannot know which, so it cancels no such call.
            if self.below(6) == 0 && !self.oracle.is_raising(at, owner) {
                self.tally.cancelled += 1;
                self.machines.host.cancel(at, ticket)?;
            }
            return Ok(());
        }
        let file = self.below(FILES as u64) as usize;
        let space = SPACES[usize::from(self.below(3) == 0)];
        let (a, b) = (self.below(BYTES as u64), self.below(BYTES as u64));
        let last = if a.max(b) == BYTES as u64 - 1 { u64::MAX } else { a.max(b) };
        let range = match space {
            LockSpace::Posix => LockRange { first: a.min(b), last },
            LockSpace::Flock => LockRange::WHOLE,
        };
        let kind = match self.below(6) {
            0..2 => Some(LockKind::Write),
            2..4 => Some(LockKind::Read),
            _ => None,
        };
        let wait = self.below(2) == 0;
        self.lock(at, file, LockChange { owner, pid: 1, space, range, kind }, wait)
    }

    fn lock(&mut self, at: usize, file: usize, change: LockChange, wait: bool) -> Result<(), Violation> {
        let call = Call::Lock(call::Lock { file: self.machines.file(file), change, wait });
        self.oracle.begins(at, Pending { file, change, wait, ticket: None });
        match self.machines.host.call(at, &Cred::default(), call)? {
            Outcome::Done(result) => self.answered(at, change.owner, result),
            Outcome::Waiting(ticket) => {
                self.tally.waited += 1;
                self.oracle.waits(at, change.owner, ticket);
                self.hear()
            }
        }
    }

    fn hear(&mut self) -> Result<(), Violation> {
        while let Some(news) = self.machines.host.news.pop_front() {
            match news {
                News::Answer { at, ticket, result } => {
                    if let Some(owner) = self.oracle.owner_of(at, ticket) {
                        self.answered(at, owner, result)?;
                    }
                }
                News::Fenced { at } => self.oracle.forget(at),
                News::CutOff { at } if self.machines.host.machines[at].over => {
                    self.tally.ends += 1;
                    self.machines.host.begin_session(at)?;
                }
                News::CutOff { .. } => {}
                News::Refused { at, salvage } => {
                    return Err(format!("{at}: what was done was refused: {salvage:?}"));
                }
                News::Store(_) | News::Unneeded(_) | News::Shares(_) => {}
            }
        }
        Ok(())
    }

    fn answered(&mut self, at: usize, owner: u64, result: Result<Reply, Error>) -> Result<(), Violation> {
        match &result {
            Ok(_) => self.tally.locked += 1,
            Err(Error::WouldBlock) => self.tally.refused += 1,
            Err(Error::Deadlock) => self.tally.deadlocks += 1,
            Err(Error::Interrupted | Error::CutOff) => {}
            Err(error) => return Err(format!("locking is refused: {error}")),
        }
        self.oracle.ends(at, owner, result.is_ok())
    }

    /// Runs until everything has come to rest; nothing new happens meanwhile.
    fn rest(&mut self) -> Result<(), Violation> {
        self.machines.host.thaw();
        let mut quiet = 0;
        for _ in 0..REST_MAX {
            quiet += u32::from(self.machines.host.step_to_rest()?);
            self.hear()?;
            if quiet > 30 && self.machines.host.is_idle() {
                return self.check_at_rest();
            }
        }
        Err("does not come to rest".to_owned())
    }

    /// Checks that each client's knowledge of locks is true, and that the server's state is sound.
    fn check_at_rest(&self) -> Result<(), Violation> {
        let host = &self.machines.host;
        for (at, machine) in host.machines.iter().enumerate() {
            for file in 0..FILES {
                let known = machine.client.locks(&self.machines.file(file));
                known.map_or(Ok(()), |locks| self.oracle.check_known(at, file, &locks))?;
            }
        }
        host.server.check()
    }

    /// Checks that every waiting call at rest has a conflicting lock in its way. Then all other
    /// owners unlock, and calls that wait for each other are cancelled. At the end nothing is
    /// locked and no call waits.
    fn wind_down(&mut self) -> Result<(), Violation> {
        self.rest()?;
        for round in 0.. {
            self.tally.blocked_at_rest += self.oracle.check_waits()?;
            for at in 0..self.machines.host.machines.len() {
                for owner in 0..OWNERS {
                    for (file, space) in (0..FILES).flat_map(|file| SPACES.map(|space| (file, space))) {
                        if self.oracle.pending(at, owner).is_none() {
                            let range = LockRange::WHOLE;
                            let change = LockChange { owner, pid: 1, space, range, kind: None };
                            self.lock(at, file, change, false)?;
                        }
                    }
                }
            }
            self.rest()?;
            match self.oracle.some_ticket() {
                Some((at, ticket)) => self.machines.host.cancel(at, ticket)?,
                None if self.oracle.is_empty() => return Ok(()),
                None if round > 100 => return Err(format!("something stays locked: {:?}", self.oracle)),
                None => {}
            }
            self.hear()?;
        }
        Ok(())
    }
}

#[test]
fn locks_of_several_machines_go_together_and_nobody_waits_for_nothing() {
    let mut tally = Tally::default();
    for seed in 0..600 {
        tally = run(seed, tally).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
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
