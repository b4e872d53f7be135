//! Tests of the whole server, on disks and object stores that can fail or fall silent at any step.

mod accounts;
mod background;
mod bucket;
mod cut;
mod faults;
mod flaky;
mod flips;
mod model;
mod objects;
mod opening;
mod races;
mod steps;
mod trouble;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use cut::CutDisk;
use flaky::{Flaky, Memory};
use futures_util::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory, path::Path as Name};
use tempfile::TempDir;
use trouble::{Fault, Trouble};

use crate::{
    AccountId, Clock, Deletion, Expiry, Location, NewShare, OpenError, Seconds, ShareId, ShareServer,
    ShareServerSettings, State,
    bridge::Bridge,
    content,
    disk::LocalDisk,
    local::LocalFiles,
    s3,
    server::SharedState,
    share::{file_name, from_file_name},
};

/// The backends of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Files.
    Disk,
    /// An object store in memory.
    Memory,
    /// Our own S3 server, in this process.
    S3,
    /// A foreign S3 server, given by the environment (`AWS_ENDPOINT_URL` and others), in the bucket
    /// `leasehold-test`.
    Foreign,
}

impl Medium {
    /// The cases to try: all if they take milliseconds, a few if requests go to another process.
    pub fn some_of(self, cases: usize) -> impl Iterator<Item = usize> {
        (0..cases).step_by(if self == Medium::Foreign { (cases / 4).max(1) } else { 1 })
    }
}

/// Runs each of these tests on every backend. `tests/s3` brings a foreign S3 server.
macro_rules! everywhere {
    ($($test:ident,)*) => {
        mod on_disk {
            $(#[test] fn $test() { super::$test($crate::tests::Medium::Disk) })*
        }
        mod in_memory {
            $(#[test] fn $test() { super::$test($crate::tests::Medium::Memory) })*
        }
        mod on_s3 {
            $(#[test] fn $test() { super::$test($crate::tests::Medium::S3) })*
        }
        mod on_foreign_s3 {
            $(#[test] #[ignore = "needs an S3 server: tests/s3"] fn $test() { super::$test($crate::tests::Medium::Foreign) })*
        }
    };
}
use everywhere;

/// A directory, a clock, and the orders for the next server's disk.
pub struct World {
    dir: TempDir,
    now: Arc<AtomicU64>,
    objects: Option<Outside>,
    pub grace: Duration,
    pub open_files_max: usize,
    pub expiry: Option<Expiry>,
}

/// An object store as its other users see it.
pub struct Outside {
    pub store: Arc<dyn ObjectStore>,
    pub location: Location,
    pub memory: Arc<Memory>,
}

/// A server whose reaper works on request.
pub struct Running {
    pub server: ShareServer,
    pub disk: Arc<Trouble>,
    cut: Option<Arc<CutDisk>>,
}

/// The bridge for looking at objects from outside.
static BRIDGE: LazyLock<Bridge> = LazyLock::new(|| Bridge::start().unwrap());

impl Outside {
    fn new(on: Medium) -> Option<Outside> {
        static WORLDS: AtomicU64 = AtomicU64::new(0);
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let location: Location =
            format!("s3://leasehold-test/{}/{number}", std::process::id()).parse().unwrap();
        let store: Arc<dyn ObjectStore> = match on {
            Medium::Disk => return None,
            Medium::Memory => Arc::new(InMemory::new()),
            Medium::S3 => s3::connect_as(&location, bucket::environment()).unwrap(),
            Medium::Foreign => s3::connect(&location).unwrap(),
        };
        Some(Outside { store, location, memory: Arc::default() })
    }

    fn name(&self, share: &ShareId) -> Name {
        self.location.root().join("shares").join(format!("{:02x}", share.0[0])).join(file_name(share))
    }

    pub fn names(&self) -> Vec<String> {
        let (store, root) = (self.store.clone(), self.location.root());
        let listed = BRIDGE.wait(async move { store.list(Some(&root)).try_collect::<Vec<_>>().await });
        listed.unwrap().unwrap().into_iter().map(|meta| meta.location.to_string()).collect()
    }
}

impl World {
    pub fn new() -> World {
        World::on(Medium::Disk)
    }

    pub fn on(on: Medium) -> World {
        // The directory is in memory where that is possible. The test disk decides the loss of a
        // power cut, not the real disk.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        fs::create_dir(dir.path().join("limbo")).unwrap();
        World {
            dir,
            now: Arc::new(AtomicU64::new(1_000_000)),
            objects: Outside::new(on),
            grace: Duration::from_secs(100),
            open_files_max: 4,
            expiry: None,
        }
    }

    pub fn dir(&self) -> PathBuf {
        self.dir.path().join("server")
    }

    /// Another directory. Its objects are to be in the same store, under the same name with
    /// `suffix` added.
    pub fn neighbour(&self, suffix: &str) -> World {
        let beside = |outside: &Outside| Outside {
            store: outside.store.clone(),
            location: format!("{}{suffix}", outside.location).parse().unwrap(),
            memory: outside.memory.clone(),
        };
        World { objects: self.objects.as_ref().map(beside), ..World::new() }
    }

    /// The object store, if there is one.
    pub fn outside(&self) -> Option<&Outside> {
        self.objects.as_ref()
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

    pub fn settings(&self) -> ShareServerSettings {
        let now = self.now.clone();
        let clock: Clock = Arc::new(move || now.load(Ordering::Relaxed));
        let World { grace, open_files_max, expiry, .. } = *self;
        let content = self.objects.as_ref().map(|outside| outside.location.clone());
        ShareServerSettings { grace, open_files_max, expiry, content, ..ShareServerSettings::new(clock) }
    }

    /// Opens the server and lets discovery finish.
    pub fn open(&self) -> Running {
        let running = self.try_open(None).unwrap();
        running.server.finish_discovery().unwrap();
        running
    }

    pub fn try_open(&self, fault: Option<(usize, Fault)>) -> Result<Running, OpenError> {
        let trouble = Arc::new(Trouble::default());
        if let Some((after, fault)) = fault {
            trouble.set_fault(after, fault);
        }
        let mut cut = None;
        match self.open_with(self.settings(), &trouble, &mut cut) {
            Ok(server) => {
                let server = ShareServer::without_threads(server);
                // Unless a test says otherwise, the cluster has renewed every wanted share.
                server.vouch(Seconds::MAX);
                Ok(Running { server, disk: trouble, cut })
            }
            Err(error) => {
                if let Some(cut) = cut {
                    cut.lose(1);
                }
                Err(error)
            }
        }
    }

    /// Serves as in production, with background threads.
    pub fn serve(&self, settings: ShareServerSettings) -> ShareServer {
        ShareServer::start(self.open_with(settings, &Arc::default(), &mut None).unwrap()).unwrap()
    }

    fn open_with(
        &self,
        settings: ShareServerSettings,
        trouble: &Arc<Trouble>,
        cut: &mut Option<Arc<CutDisk>>,
    ) -> Result<SharedState, OpenError> {
        SharedState::open_on(&self.dir(), settings, trouble.clone(), || match &self.objects {
            None => {
                let local = LocalDisk::open(&self.dir())?;
                let is_new = local.is_new;
                let limbo = self.dir.path().join("limbo");
                let disk = Arc::new(CutDisk::new(local, &self.dir(), &limbo, trouble.clone()));
                *cut = Some(disk.clone());
                Ok((Arc::new(LocalFiles::new(disk)), is_new))
            }
            Some(Outside { store, location, memory }) => {
                let flaky = Flaky::new(store.clone(), trouble.clone(), memory.clone());
                content::open(&self.dir(), Some(location), |_| Ok(Arc::new(flaky)))
            }
        })
    }

    /// Deposits share `n` as `scp` does: a file without a row.
    pub fn deposit(&self, n: u64) {
        let elsewhere = World::new();
        elsewhere.open().store(&[(id(n), &body(n))], ME).unwrap();
        self.write_file(&id(n), &elsewhere.file(&id(n)).unwrap());
    }

    /// Puts or removes a foreign file among the shares.
    pub fn set_stranger(&self, present: bool) {
        let Some(outside) = &self.objects else {
            let path = self.dir().join("shares/00/README");
            let done = if present { fs::write(path, "not a share") } else { fs::remove_file(path) };
            return done.unwrap();
        };
        let (store, name) =
            (outside.store.clone(), outside.location.root().join("shares").join("00").join("README"));
        let done = BRIDGE.wait(async move {
            match present {
                true => store.put(&name, "not a share".into()).await.map(drop),
                false => store.delete(&name).await,
            }
        });
        done.unwrap().unwrap();
    }

    fn path(&self, share: &ShareId) -> PathBuf {
        self.dir().join(format!("shares/{:02x}", share.0[0])).join(file_name(share))
    }

    /// A share's file, read past the server.
    pub fn file(&self, share: &ShareId) -> Option<Vec<u8>> {
        let Some(outside) = &self.objects else { return fs::read(self.path(share)).ok() };
        let (store, name) = (outside.store.clone(), outside.name(share));
        let got = BRIDGE.wait(async move { store.get(&name).await?.bytes().await }).unwrap();
        got.ok().map(Vec::from)
    }

    pub fn write_file(&self, share: &ShareId, bytes: &[u8]) {
        let Some(outside) = &self.objects else { return fs::write(self.path(share), bytes).unwrap() };
        let (store, name, bytes) = (outside.store.clone(), outside.name(share), bytes.to_vec());
        BRIDGE.wait(async move { store.put(&name, bytes.into()).await }).unwrap().unwrap();
    }

    pub fn remove_file(&self, share: &ShareId) {
        let Some(outside) = &self.objects else { return fs::remove_file(self.path(share)).unwrap() };
        let (store, name) = (outside.store.clone(), outside.name(share));
        BRIDGE.wait(async move { store.delete(&name).await }).unwrap().unwrap();
    }

    /// The files among the shares, and the number of files of uploads under way.
    pub fn files(&self) -> (Vec<ShareId>, usize) {
        let Some(outside) = &self.objects else { return files(&self.dir()) };
        let names = outside.names();
        let shares = names.iter().filter_map(|name| from_file_name(name.rsplit('/').next()?));
        let mut shares: Vec<ShareId> = shares.collect();
        shares.sort();
        assert_eq!(names.len(), shares.len() + 1, "the owner's mark: {names:?}");
        (shares, 0)
    }
}

impl Running {
    /// Cuts the power, which loses a part of the unsynced data.
    pub fn cut(self, seed: u64) {
        drop(self.server);
        if let Some(cut) = self.cut {
            cut.lose(seed);
        }
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

/// The files among the shares and the number in `tmp/`.
fn files(dir: &Path) -> (Vec<ShareId>, usize) {
    let mut found = Vec::new();
    for prefix in fs::read_dir(dir.join("shares")).unwrap() {
        for file in fs::read_dir(prefix.unwrap().path()).unwrap() {
            found.push(from_file_name(file.unwrap().file_name().to_str().unwrap()).unwrap());
        }
    }
    found.sort();
    (found, fs::read_dir(dir.join("tmp")).unwrap().count())
}

/// Checks that nothing is under way and that rows, files and sums agree.
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
    assert_eq!(world.files(), (rows.clone(), 0));
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

pub fn release_now(running: &Running, ids: &[ShareId]) {
    running.server.release(ME, ids, Deletion::AtOnce).unwrap();
}
