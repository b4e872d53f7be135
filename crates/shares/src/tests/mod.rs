//! Tests of the server as a whole, on a disk that can fail or lose power at any step.

mod accounts;
mod background;
mod bars;
mod cut;
mod faults;
mod flips;
mod model;
mod older;
mod opening;
mod races;
mod steps;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use cut::{CutDisk, Fault};
use tempfile::TempDir;

use crate::{
    AccountId, Clock, Deletion, Expiry, NewShare, OpenError, Seconds, Settings, ShareId, ShareServer, State,
    server::Server, share::from_file_name,
};

/// A directory, a clock, and what the next server's disk is to do.
pub struct World {
    dir: TempDir,
    now: Arc<AtomicU64>,
    pub grace: Duration,
    pub open_files_max: usize,
    pub expiry: Option<Expiry>,
}

/// A server whose reaper works when it is told to.
pub struct Running {
    pub server: ShareServer,
    pub disk: Arc<CutDisk>,
}

impl World {
    pub fn new() -> World {
        // In memory where that is possible: what a power cut loses is decided by the disk of the tests, not by the real one.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        fs::create_dir(dir.path().join("limbo")).unwrap();
        World {
            dir,
            now: Arc::new(AtomicU64::new(1_000_000)),
            grace: Duration::from_secs(100),
            open_files_max: 4,
            expiry: None,
        }
    }

    pub fn dir(&self) -> PathBuf {
        self.dir.path().join("server")
    }

    pub fn now(&self) -> Seconds {
        self.now.load(Ordering::Relaxed)
    }

    pub fn set(&self, now: Seconds) {
        self.now.store(now, Ordering::Relaxed);
    }

    pub fn advance(&self, seconds: Seconds) {
        self.now.fetch_add(seconds, Ordering::Relaxed);
    }

    pub fn settings(&self) -> Settings {
        let now = self.now.clone();
        let clock: Clock = Arc::new(move || now.load(Ordering::Relaxed));
        let World { grace, open_files_max, expiry, .. } = *self;
        Settings { grace, open_files_max, expiry, ..Settings::new(clock) }
    }

    /// Opens it and lets discovery finish.
    pub fn open(&self) -> Running {
        let running = self.try_open(None).unwrap();
        running.server.finish_discovery().unwrap();
        running
    }

    pub fn try_open(&self, fault: Option<(usize, Fault)>) -> Result<Running, OpenError> {
        let mut kept = None;
        let limbo = self.dir.path().join("limbo");
        let server = Server::open(&self.dir(), self.settings(), |local| {
            let disk = Arc::new(CutDisk::new(local, &self.dir(), &limbo, fault));
            kept = Some(disk.clone());
            disk
        });
        let server = match server {
            Ok(server) => server,
            Err(error) => {
                if let Some(disk) = kept {
                    disk.lose(1);
                }
                return Err(error);
            }
        };
        let server = ShareServer::without_threads(server);
        // Whoever does not say otherwise has renewed what it wants kept.
        server.vouch(Seconds::MAX);
        Ok(Running { server, disk: kept.unwrap() })
    }
}

impl Running {
    /// Power is lost, and with it a part of what was not synced.
    pub fn cut(self, seed: u64) {
        drop(self.server);
        self.disk.lose(seed);
    }

    pub fn store(&self, shares: &[(ShareId, &[u8])], account: AccountId) -> Result<(), crate::StoreError> {
        self.server.store_many(shares.iter().map(|(id, body)| new_share(*id, body)).collect(), account, None)
    }

    pub fn read_all(&self, id: &ShareId) -> Result<Vec<u8>, crate::ReadError> {
        let length = self.server.share(id)?.map_or(0, |share| share.length);
        self.server.read(id, 0, length)
    }
}

pub fn new_share(id: ShareId, body: &[u8]) -> NewShare {
    let (first, second) = body.split_at(body.len() / 3);
    NewShare { id, parts: vec![Bytes::copy_from_slice(first), Bytes::copy_from_slice(second)] }
}

/// An id whose prefix is `n` modulo 5, so that shares meet in directories.
pub fn id(n: u64) -> ShareId {
    let mut bytes = [0; 16];
    bytes[0] = u8::try_from(n % 5).unwrap();
    bytes[8..].copy_from_slice(&n.to_be_bytes());
    ShareId(bytes)
}

pub fn body(n: u64) -> Vec<u8> {
    (0..(n % 7) * 50).map(|i| u8::try_from((n * 31 + i) % 251).unwrap()).collect()
}

/// Files among the shares and in `tmp/`.
pub fn files(dir: &Path) -> (Vec<ShareId>, usize) {
    let mut found = Vec::new();
    for prefix in fs::read_dir(dir.join("shares")).unwrap() {
        for file in fs::read_dir(prefix.unwrap().path()).unwrap() {
            found.push(from_file_name(file.unwrap().file_name().to_str().unwrap()).unwrap());
        }
    }
    found.sort();
    (found, fs::read_dir(dir.join("tmp")).unwrap().count())
}

/// Nothing is under way, and everything that is kept agrees: rows, files, sums.
pub fn check_quiet(world: &World, running: &Running) {
    let mut rows = Vec::new();
    let mut bytes = 0;
    let mut by_account = std::collections::BTreeMap::<AccountId, (u64, u64)>::new();
    running
        .server
        .for_each_share(|share| {
            assert_eq!(share.state, State::Stable, "{share:?}");
            rows.push(share.id);
            bytes += u64::from(share.length);
            let leases = running.server.leases_of(&share.id).unwrap();
            assert_eq!(leases.len(), share.leases as usize, "{share:?}");
            for lease in leases {
                let sum = by_account.entry(lease.account).or_default();
                *sum = (sum.0 + 1, sum.1 + u64::from(share.length));
            }
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(files(&world.dir()), (rows.clone(), 0));
    let stored = running.server.stored().unwrap();
    assert_eq!((stored.shares, stored.bytes), (rows.len() as u64, bytes));
    for account in (0..6).map(AccountId) {
        let usage = running.server.usage(account).unwrap();
        assert_eq!(
            (usage.shares, usage.bytes),
            by_account.get(&account).copied().unwrap_or_default(),
            "{account:?}"
        );
    }
}

/// A small generator: the same numbers for the same seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        // splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// The account that most tests use.
pub const ME: AccountId = AccountId::ANONYMOUS;

pub fn let_go_now(running: &Running, ids: &[ShareId]) {
    running.server.let_go(ME, ids, Deletion::AtOnce).unwrap();
}
