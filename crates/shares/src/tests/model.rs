//! Random sequences of operations against a model in memory: uploads, leases, releases, expiry,
//! deletions, failures, power cuts, damage and restored databases.
//!
//! An operation without an acknowledgement has happened as a whole or not at all; everything else
//! is known exactly. After the database was lost or put back to an earlier state, every held share
//! must be there still, under some lease. The model then begins anew from the observed state.

use std::{
    collections::BTreeMap, fs, io::ErrorKind, ops::ControlFlow, path::PathBuf, sync::atomic::Ordering, thread,
};

use super::{ME, Medium, Random, Running, World, body, check_quiet, everywhere, id, trouble::Fault};
use crate::{
    AccountId, Deletion, Expiry, Health, ReadError, Seconds, ShareId, State, Suspended, transitions,
};

/// The numbers of sequences: on disk, in memory, over our own S3 server, and over a foreign one,
/// whose answers take milliseconds each. `SEQUENCES_TIMES` multiplies them, as `.ci/soak` does.
const SEQUENCES: [u64; 4] = [1_500, 750, 500, 6];
const STEPS: usize = 10;
const SHARES: u64 = 8;
const OWN: AccountId = AccountId(2);
const STARTER_SECONDS: Seconds = transitions::STARTER_SECONDS;

everywhere! {
    any_sequence_agrees_with_the_model,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    shares: BTreeMap<ShareId, Kept>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Kept {
    number: u64,
    leases: BTreeMap<AccountId, Lease>,
    unleased_since: Option<Seconds>,
    damaged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lease {
    renewed_at: Seconds,
    until: Option<Seconds>,
}

#[derive(Clone, Debug)]
enum Op {
    Upload {
        numbers: Vec<u64>,
        account: AccountId,
        until: Option<Seconds>,
    },
    Lease {
        numbers: Vec<u64>,
        account: AccountId,
        until: Option<Seconds>,
    },
    LetGo {
        numbers: Vec<u64>,
        account: Option<AccountId>,
        deletion: Deletion,
    },
    DropUnrenewed {
        account: AccountId,
        since: Seconds,
    },
    Expire,
    Reap,
    Scrub,
    Discover,
    /// Damage from outside: a share's bytes change, or its file is removed.
    Damage {
        number: u64,
        gone: bool,
    },
    /// The database is lost, garbled, or put back to an earlier state.
    Database(Loss),
}

#[derive(Clone, Copy, Debug)]
enum Loss {
    Missing,
    Garbled { at: u64 },
    Restored,
}

impl Model {
    /// Leases a share that must be there and sound.
    fn lease(&mut self, share: &ShareId, account: AccountId, lease: Lease) -> bool {
        let Some(kept) = self.shares.get_mut(share).filter(|kept| !kept.damaged) else { return false };
        let longer = match kept.leases.get(&account) {
            None => lease.until,
            Some(old) => old.until.zip(lease.until).map(|(old, new)| old.max(new)),
        };
        kept.leases.insert(account, Lease { until: longer, ..lease });
        kept.unleased_since = None;
        true
    }

    fn end_leases(&mut self, now: Seconds, is_over: impl Fn(AccountId, &Lease) -> bool) {
        for kept in self.shares.values_mut() {
            let before = kept.leases.len();
            kept.leases.retain(|account, lease| !is_over(*account, lease));
            if before > 0 && kept.leases.is_empty() {
                kept.unleased_since = Some(now);
            }
        }
    }

    fn apply(&mut self, op: &Op, now: Seconds, grace: Seconds) {
        match op {
            Op::Upload { numbers, account, until } => {
                for n in numbers {
                    let kept =
                        self.shares.entry(id(*n)).or_insert_with(|| Kept { number: *n, ..Kept::default() });
                    kept.damaged = false;
                    self.lease(&id(*n), *account, Lease { renewed_at: now, until: *until });
                }
            }
            Op::Lease { numbers, account, until } => {
                for n in numbers {
                    self.lease(&id(*n), *account, Lease { renewed_at: now, until: *until });
                }
            }
            Op::LetGo { numbers, account, deletion } => {
                for n in numbers {
                    let Some(kept) = self.shares.get_mut(&id(*n)) else { continue };
                    let before = kept.leases.len();
                    kept.leases.retain(|a, _| account.is_some_and(|account| account != *a));
                    let had = before > kept.leases.len();
                    if kept.leases.is_empty() {
                        if had {
                            kept.unleased_since = Some(now);
                        }
                        if *deletion == Deletion::AtOnce && (had || account.is_none()) {
                            kept.unleased_since = Some(0);
                        }
                    }
                }
            }
            Op::DropUnrenewed { account, since } => {
                self.end_leases(now, |a, lease| a == *account && lease.renewed_at < *since);
            }
            Op::Expire => self.end_leases(now, |_, lease| lease.until.is_some_and(|until| until <= now)),
            Op::Reap => {
                self.shares.retain(|_, kept| kept.unleased_since.is_none_or(|since| since + grace > now));
            }
            Op::Damage { number, .. } => {
                if let Some(kept) = self.shares.get_mut(&id(*number)) {
                    kept.damaged = true;
                }
            }
            Op::Scrub | Op::Discover | Op::Database(_) => {}
        }
    }

    /// Applies an upload that failed after its announcement: only shares that were there get
    /// leases.
    fn apply_announced(&mut self, op: &Op, now: Seconds) {
        if let Op::Upload { numbers, account, until } = op {
            for n in numbers {
                self.lease(&id(*n), *account, Lease { renewed_at: now, until: *until });
            }
        }
    }
}

/// The server's state in the model's terms.
fn observe(running: &Running) -> Model {
    let mut seen = Model::default();
    let server = &running.server;
    server
        .for_each_share(|share| {
            assert_eq!(share.state, State::Stable);
            let number = u64::from_be_bytes(share.id.0[8..].try_into().unwrap());
            let leases = server.leases_of(&share.id).unwrap().into_iter();
            let leases = leases.map(|lease| {
                (lease.account, Lease { renewed_at: lease.renewed_at, until: lease.expires_at })
            });
            let row = server.inner().database.read("looking", |c| transitions::row(c, &share.id)).unwrap();
            let unleased_since = row.unwrap().unleased_since.map(|t| u64::try_from(t).unwrap());
            let damaged = share.health != Health::Ok;
            seen.shares.insert(share.id, Kept { number, leases: leases.collect(), unleased_since, damaged });
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
    /// A copy of the database, made once, as a backup is.
    backup: Option<PathBuf>,
}

/// Opens the server. The cluster's own account exists whatever became of the database.
fn open(world: &World) -> Running {
    let running = world.open();
    assert_eq!(running.server.account("group").unwrap(), OWN);
    running
}

impl Run {
    fn new(on: Medium, seed: u64) -> Run {
        let mut world = World::on(on);
        world.expiry = Some(Expiry::Age);
        let running = Some(open(&world));
        Run { world, running, model: Model::default(), random: Random(seed), backup: None }
    }

    fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    fn pick(&mut self) -> Op {
        let count = 1 + self.random.below(3);
        let first = self.random.below(SHARES);
        let numbers: Vec<u64> = (0..count).map(|i| (first + i * 5) % SHARES).collect();
        let account = if self.random.chance(50) { ME } else { OWN };
        let until = self.random.chance(70).then(|| self.world.now() + self.random.below(200));
        let deletion = if self.random.chance(50) { Deletion::AtOnce } else { Deletion::AfterGrace };
        match self.random.below(100) {
            0..35 => Op::Upload { numbers, account, until },
            35..48 => Op::Lease { numbers, account, until },
            48..66 => Op::LetGo { numbers, account: self.random.chance(80).then_some(account), deletion },
            66..70 => Op::DropUnrenewed { account, since: self.world.now() - self.random.below(50) },
            70..78 => Op::Expire,
            78..82 => Op::Reap,
            82..85 => Op::Scrub,
            85..88 => Op::Discover,
            88..93 => Op::Damage { number: first, gone: self.random.chance(50) },
            93..95 => Op::Database(Loss::Missing),
            95..97 => Op::Database(Loss::Garbled { at: self.random.next() }),
            _ => Op::Database(Loss::Restored),
        }
    }

    /// Carries out an operation. Returns whether it was acknowledged.
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
                    let sound = |id: &ShareId| self.model.shares.get(id).is_some_and(|kept| !kept.damaged);
                    assert_eq!(held, ids(numbers).into_iter().filter(sound).collect::<Vec<_>>());
                    true
                }
                Err(_) => false,
            },
            Op::LetGo { numbers, account: Some(account), deletion } => {
                server.release(*account, &ids(numbers), *deletion).is_ok()
            }
            Op::LetGo { numbers, account: None, deletion } => {
                server.release_all(&ids(numbers), *deletion).is_ok()
            }
            Op::DropUnrenewed { account, since } => server.drop_unrenewed_since(*account, *since).is_ok(),
            Op::Expire => server.expire().is_ok(),
            Op::Reap => server.reap().is_ok(),
            Op::Scrub => server.scrub().is_ok(),
            Op::Discover => server.discover().is_ok(),
            Op::Damage { .. } | Op::Database(_) => true,
        }
    }

    fn step(&mut self) {
        // A list of objects may be old at any time.
        let stale = self.random.chance(30);
        if let Some(outside) = self.world.outside() {
            outside.memory.stale.store(stale, Ordering::Relaxed);
        }
        match self.pick() {
            Op::Database(loss) => self.lose_database(loss),
            Op::Damage { number, gone } => self.damage(number, gone),
            op => self.operate(&op),
        }
        if self.backup.is_none() && self.random.chance(20) {
            self.back_up();
        }
        let advance = self.random.below(60);
        self.world.advance(advance);
    }

    fn operate(&mut self, op: &Op) {
        let fault = match self.random.below(12) {
            0 | 1 => Some(Fault::Cut),
            2 => Some(Fault::CutAfter),
            3 => Some(Fault::Fail(ErrorKind::StorageFull)),
            4 => Some(Fault::Fail(ErrorKind::Other)),
            5 => Some(Fault::Lost),
            _ => None,
        };
        if let Some(fault) = fault {
            let after = usize::try_from(self.random.below(16)).unwrap();
            self.running().disk.set_fault(after, fault);
        }
        let acknowledged = self.carry_out(op);
        let (now, grace) = (self.world.now(), self.world.grace.as_secs());
        let before = self.model.clone();
        let mut after = before.clone();
        after.apply(op, now, grace);
        let mut announced = before.clone();
        announced.apply_announced(op, now);
        let possible = if acknowledged { vec![after] } else { vec![after, announced, before] };
        self.check_reads(&possible, fault.is_some());
        self.settle(possible);
        if !acknowledged {
            self.look_at_repairs();
        }
    }

    /// A failed repair may have put the file in its place. The share is then sound for every
    /// reader.
    fn look_at_repairs(&mut self) {
        let server = &self.running.as_ref().unwrap().server;
        for (id, kept) in &mut self.model.shares {
            if kept.damaged && server.verify(id).is_ok() {
                kept.damaged = false;
                assert_eq!(
                    server.read(id, 0, u32::try_from(body(kept.number).len()).unwrap()).unwrap(),
                    body(kept.number)
                );
            }
        }
    }

    /// Checks reads. A share that all possibilities hold is readable, and one that none holds is
    /// not served. An object store with a fault ahead may fail at these reads.
    fn check_reads(&self, possible: &[Model], may_fail: bool) {
        if self.running().disk.is_dead() {
            return;
        }
        for n in 0..SHARES {
            let length = u32::try_from(body(n).len()).unwrap();
            let any = |is: &dyn Fn(Option<&Kept>) -> bool| possible.iter().any(|m| is(m.shares.get(&id(n))));
            match self.running().server.read(&id(n), 0, length) {
                Ok(bytes) => {
                    assert_eq!(bytes, body(n));
                    assert!(any(&|kept| kept.is_some_and(|kept| !kept.damaged)), "share {n} is served");
                }
                Err(ReadError::NotFound(_) | ReadError::Going(_)) => {
                    // A share under repair is not served either, until the reaper has dealt with a
                    // failed repair.
                    assert!(any(&|kept| kept.is_none_or(|kept| kept.damaged)), "share {n} is not served");
                }
                Err(ReadError::Damaged { .. }) => {
                    assert!(any(&|kept| kept.is_some_and(|kept| kept.damaged)), "share {n} is damaged");
                }
                Err(ReadError::Disk(_)) if may_fail => {}
                Err(error) => panic!("share {n}: {error}"),
            }
        }
    }

    /// Reopens after a cut, lets the reaper finish, and finds out which possibility is true.
    fn settle(&mut self, mut possible: Vec<Model>) {
        let running = self.running.take().unwrap();
        let running = if running.disk.is_dead() || self.random.chance(5) {
            let seed = self.random.next();
            if running.disk.is_dead() {
                running.cut(seed)
            } else {
                drop(running)
            }
            open(&self.world)
        } else {
            running
        };
        // A fault that is still ahead may strike here, but not later.
        let _ = running.server.reap();
        if running.disk.is_dead() {
            let seed = self.random.next();
            running.cut(seed);
            self.running = Some(open(&self.world));
        } else {
            running.disk.clear_fault();
            self.running = Some(running);
        }
        // An interrupted discovery continues; nothing is deleted before its end.
        self.running().server.finish_discovery().unwrap();
        self.running().server.reap().unwrap();
        for model in &mut possible {
            model.apply(&Op::Reap, self.world.now(), self.world.grace.as_secs());
        }
        let seen = observe(self.running());
        let Some(matching) = possible.iter().find(|model| seen == **model) else {
            panic!("none of these: {possible:#?}\nbut {seen:#?}");
        };
        self.model = matching.clone();
    }

    fn damage(&mut self, number: u64, gone: bool) {
        if self.model.shares.get(&id(number)).is_none_or(|kept| kept.damaged) {
            return;
        }
        if gone {
            self.world.remove_file(&id(number));
        } else {
            let mut bytes = self.world.file(&id(number)).unwrap();
            let at = usize::try_from(self.random.below(bytes.len() as u64)).unwrap();
            bytes[at] ^= 1 << self.random.below(8);
            self.world.write_file(&id(number), &bytes);
        }
        self.model.apply(&Op::Damage { number, gone }, self.world.now(), 0);
        // Any reader may find the damage.
        if self.random.chance(50) {
            self.running().server.verify(&id(number)).unwrap_err();
        } else {
            self.running().server.scrub().unwrap();
        }
        self.settle(vec![self.model.clone()]);
    }

    fn back_up(&mut self) {
        drop(self.running.take());
        let backup = self.world.dir().with_file_name("backup");
        fs::copy(self.world.dir().join("leases.sqlite"), &backup).unwrap();
        self.backup = Some(backup);
        self.running = Some(open(&self.world));
    }

    fn lose_database(&mut self, loss: Loss) {
        let path = self.world.dir().join("leases.sqlite");
        drop(self.running.take());
        match loss {
            Loss::Missing => fs::remove_file(&path).unwrap(),
            Loss::Garbled { at } => {
                let mut bytes = fs::read(&path).unwrap();
                let page = usize::try_from(at).unwrap() % (bytes.len() / 4096) * 4096;
                bytes[page..page + 4096].fill(0xa5);
                fs::write(&path, bytes).unwrap();
                // The first reader of the damage reports it; here, the scrub.
                if let Ok(running) = self.world.try_open(None) {
                    let _ = running.server.scrub();
                }
            }
            Loss::Restored => {
                if let Some(backup) = &self.backup {
                    fs::copy(backup, &path).unwrap();
                }
            }
        }
        self.running = Some(open(&self.world));
        let server = &self.running().server;
        server.scrub().unwrap();
        server.reap().unwrap();
        // A share that is unleased for long enough may be deleted at any time.
        let (now, grace) = (self.world.now(), self.world.grace.as_secs());
        self.model.apply(&Op::Reap, now, grace);
        let server = &self.running().server;
        // Discovery by an old list leaves some shares out. A user who knows them asks for them.
        for n in 0..SHARES {
            if server.share(&id(n)).unwrap().is_none() {
                let held = server.lease(OWN, &[id(n)], None).unwrap();
                let lost = held.is_empty() && self.model.shares.get(&id(n)).is_some_and(|kept| !kept.damaged);
                assert!(!lost, "{loss:?}: share {n} is lost");
                // The scrub has not examined the share yet.
                let _ = server.verify(&id(n));
            }
        }
        assert_eq!(server.suspended().unwrap(), None::<Suspended>);
        let seen = observe(self.running());
        for (share, kept) in &self.model.shares {
            let now = seen.shares.get(share);
            // Known damage may be found anew, or not be looked for. A missing file has no row any
            // more.
            if kept.damaged {
                continue;
            }
            let now = now.unwrap_or_else(|| panic!("{loss:?}: {share:?} is lost"));
            assert!(!now.damaged, "{loss:?}: {share:?}");
            let starter = now.leases.get(&AccountId::STARTER).and_then(|lease| lease.until);
            let anew = starter.is_some_and(|t| t > self.world.now());
            assert!(anew || now.leases == kept.leases, "{loss:?}: {share:?} is not held any more");
            assert!(starter.is_none_or(|t| t <= self.world.now() + STARTER_SECONDS));
        }
        self.model = seen;
        check_quiet_but_lost(self);
    }
}

/// As [`check_quiet`], but rows of vanished shares have no file.
fn check_quiet_but_lost(run: &Run) {
    let lost = |kept: &&Kept| run.world.file(&id(kept.number)).is_none();
    if run.model.shares.values().filter(lost).count() == 0 {
        check_quiet(&run.world, run.running());
    }
}

fn sequence(on: Medium, seed: u64) {
    let mut run = Run::new(on, seed);
    for step in 0..STEPS {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run.step()));
        if let Err(panic) = outcome {
            eprintln!("seed {seed}, step {step}");
            std::panic::resume_unwind(panic);
        }
    }
    run.check_reads(&[run.model.clone()], false);
    check_quiet_but_lost(&run);
}

fn any_sequence_agrees_with_the_model(on: Medium) {
    let threads = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let times = std::env::var("SEQUENCES_TIMES").map_or(1, |times| times.parse().unwrap());
    let sequences = SEQUENCES[on as usize] * times;
    thread::scope(|scope| {
        for first in 0..threads {
            let mine = (first..sequences).step_by(threads as usize);
            scope.spawn(move || mine.for_each(|seed| sequence(on, seed)));
        }
    });
}
