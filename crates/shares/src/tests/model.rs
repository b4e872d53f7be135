//! Random sequences of uploads, leases, releases, deletions, failures and power cuts, against a model in memory.
//!
//! An operation that was not acknowledged may have happened or not, as a whole; everything else is known exactly.

use std::{collections::BTreeMap, io::ErrorKind, ops::ControlFlow};

use super::{Fault, Random, Running, World, body, check_quiet, id};
use crate::{AccountId, Deletion, ReadError, Seconds, ShareId, ShareLease, State};

const SEEDS: u64 = 25;
const STEPS: usize = 80;
const SHARES: u64 = 12;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    shares: BTreeMap<ShareId, Kept>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Kept {
    number: u64,
    leases: BTreeMap<AccountId, Option<Seconds>>,
    unleased_since: Option<Seconds>,
}

#[derive(Clone, Debug)]
enum Op {
    Upload { numbers: Vec<u64>, account: AccountId, until: Option<Seconds> },
    Lease { numbers: Vec<u64>, account: AccountId, until: Option<Seconds> },
    LetGo { numbers: Vec<u64>, account: Option<AccountId>, deletion: Deletion },
    Reap,
}

impl Model {
    fn lease(&mut self, share: &ShareId, account: AccountId, until: Option<Seconds>) -> bool {
        let Some(kept) = self.shares.get_mut(share) else { return false };
        let before = kept.leases.get(&account).copied();
        let longer = match (before, until) {
            (None, until) => until,
            (Some(Some(old)), Some(new)) => Some(old.max(new)),
            (Some(None), _) | (Some(_), None) => None,
        };
        kept.leases.insert(account, longer);
        kept.unleased_since = None;
        true
    }

    fn apply(&mut self, op: &Op, now: Seconds, grace: Seconds) {
        match op {
            Op::Upload { numbers, account, until } => {
                for n in numbers {
                    self.shares.entry(id(*n)).or_insert_with(|| Kept { number: *n, ..Kept::default() });
                    self.lease(&id(*n), *account, *until);
                }
            }
            Op::Lease { numbers, account, until } => {
                for n in numbers {
                    self.lease(&id(*n), *account, *until);
                }
            }
            Op::LetGo { numbers, account, deletion } => {
                for n in numbers {
                    let Some(kept) = self.shares.get_mut(&id(*n)) else { continue };
                    let before = kept.leases.len();
                    kept.leases.retain(|a, _| account.is_some_and(|account| account != *a));
                    if kept.leases.is_empty() {
                        if before > 0 {
                            kept.unleased_since = Some(now);
                        }
                        if *deletion == Deletion::AtOnce && (before > 0 || account.is_none()) {
                            kept.unleased_since = Some(0);
                        }
                    }
                }
            }
            Op::Reap => {
                self.shares.retain(|_, kept| kept.unleased_since.is_none_or(|since| since + grace > now))
            }
        }
    }

    /// Only what was there before gets its leases: an upload that failed after it was announced.
    fn apply_announced(&mut self, op: &Op) {
        if let Op::Upload { numbers, account, until } = op {
            for n in numbers {
                self.lease(&id(*n), *account, *until);
            }
        }
    }
}

/// What the server holds, in the model's words.
fn observe(running: &Running, model: &Model) -> Model {
    let mut seen = Model::default();
    running
        .server
        .for_each_share(|share| {
            assert_eq!(share.state, State::Stable);
            let number = u64::from_be_bytes(share.id.0[8..].try_into().unwrap());
            let leases: Vec<ShareLease> = running.server.leases_of(&share.id).unwrap();
            let leases = leases.iter().map(|lease| (lease.account, lease.expires_at)).collect();
            // When a share became unleased shows only in when it is deleted.
            let unleased_since = model.shares.get(&share.id).and_then(|kept| kept.unleased_since);
            seen.shares.insert(share.id, Kept { number, leases, unleased_since });
            ControlFlow::Continue(())
        })
        .unwrap();
    seen
}

struct Run {
    world: World,
    running: Option<Running>,
    model: Model,
    random: Random,
}

impl Run {
    fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    fn pick(&mut self) -> Op {
        let count = 1 + self.random.below(4);
        let first = self.random.below(SHARES);
        let numbers: Vec<u64> = (0..count).map(|i| (first + i * 5) % SHARES).collect();
        let account = AccountId(i64::try_from(self.random.below(2)).unwrap());
        let until = self.random.chance(70).then(|| self.world.now() + self.random.below(1000));
        let deletion = if self.random.chance(50) { Deletion::AtOnce } else { Deletion::AfterGrace };
        match self.random.below(10) {
            0..4 => Op::Upload { numbers, account, until },
            4..6 => Op::Lease { numbers, account, until },
            6..9 => Op::LetGo { numbers, account: self.random.chance(80).then_some(account), deletion },
            _ => Op::Reap,
        }
    }

    /// Whether it was acknowledged.
    fn carry_out(&self, op: &Op) -> bool {
        let server = &self.running().server;
        let ids = |numbers: &[u64]| -> Vec<ShareId> { numbers.iter().map(|n| id(*n)).collect() };
        match op {
            Op::Upload { numbers, account, until } => {
                let shares = numbers.iter().map(|n| super::new_share(id(*n), &body(*n))).collect();
                server.store_many(shares, *account, *until).is_ok()
            }
            Op::Lease { numbers, account, until } => match server.lease(*account, &ids(numbers), *until) {
                Ok(held) => {
                    let stable = |id: &ShareId| self.model.shares.contains_key(id);
                    assert_eq!(held, ids(numbers).into_iter().filter(stable).collect::<Vec<_>>());
                    true
                }
                Err(_) => false,
            },
            Op::LetGo { numbers, account: Some(account), deletion } => {
                server.let_go(*account, &ids(numbers), *deletion).is_ok()
            }
            Op::LetGo { numbers, account: None, deletion } => {
                server.let_go_all(&ids(numbers), *deletion).is_ok()
            }
            Op::Reap => server.reap().is_ok(),
        }
    }

    fn step(&mut self) {
        let op = self.pick();
        let fault = match self.random.below(10) {
            0 | 1 => Some(Fault::Cut),
            2 => Some(Fault::Fail(ErrorKind::StorageFull)),
            3 => Some(Fault::Fail(ErrorKind::Other)),
            _ => None,
        };
        if let Some(fault) = fault {
            let after = usize::try_from(self.random.below(16)).unwrap();
            self.running().disk.set_fault(after, fault);
        }
        let acknowledged = self.carry_out(&op);
        let (now, grace) = (self.world.now(), self.world.grace.as_secs());
        let before = self.model.clone();
        let mut after = before.clone();
        after.apply(&op, now, grace);
        let mut announced = before.clone();
        announced.apply_announced(&op);
        let possible = if acknowledged { vec![after] } else { vec![after, announced, before] };
        self.check_reads(&possible);
        self.settle(possible);
    }

    /// Whatever happened, what all possibilities hold is readable, and what none holds is not served.
    fn check_reads(&self, possible: &[Model]) {
        if self.running().disk.is_dead() {
            return;
        }
        for n in 0..SHARES {
            let length = u32::try_from(body(n).len()).unwrap();
            match self.running().server.read(&id(n), 0, length) {
                Ok(bytes) => {
                    assert_eq!(bytes, body(n));
                    assert!(possible.iter().any(|m| m.shares.contains_key(&id(n))), "share {n} is served");
                }
                Err(ReadError::NotFound(_) | ReadError::Going(_)) => {
                    assert!(
                        possible.iter().any(|m| !m.shares.contains_key(&id(n))),
                        "share {n} is not served"
                    );
                }
                Err(error) => panic!("share {n}: {error}"),
            }
        }
    }

    /// Reopens after a cut, lets the reaper finish, and finds out which possibility it was.
    fn settle(&mut self, mut possible: Vec<Model>) {
        let running = self.running.take().unwrap();
        let running = if running.disk.is_dead() || self.random.chance(5) {
            let seed = self.random.next();
            if running.disk.is_dead() {
                running.cut(seed)
            } else {
                drop(running)
            }
            self.world.open()
        } else {
            running
        };
        // A fault that is still ahead may strike here, and after this no more.
        let _ = running.server.reap();
        if running.disk.is_dead() {
            let seed = self.random.next();
            running.cut(seed);
            self.running = Some(self.world.open());
        } else {
            running.disk.clear_fault();
            self.running = Some(running);
        }
        self.running().server.reap().unwrap();
        for model in &mut possible {
            model.apply(&Op::Reap, self.world.now(), self.world.grace.as_secs());
        }
        let matching = possible.iter().find(|model| observe(self.running(), model) == **model);
        let Some(matching) = matching else {
            panic!("none of these: {possible:#?}\nbut {:#?}", observe(self.running(), &possible[0]));
        };
        self.model = matching.clone();
        check_quiet(&self.world, self.running());
        let advance = self.random.below(60);
        self.world.advance(advance);
    }
}

#[test]
fn any_sequence_agrees_with_the_model() {
    for seed in 0..SEEDS {
        let world = World::new();
        let running = Some(world.open());
        let mut run = Run { world, running, model: Model::default(), random: Random(seed) };
        for step in 0..STEPS {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.step()));
            if let Err(panic) = outcome {
                eprintln!("seed {seed}, step {step}");
                std::panic::resume_unwind(panic);
            }
        }
        run.check_reads(&[run.model.clone()]);
    }
}
