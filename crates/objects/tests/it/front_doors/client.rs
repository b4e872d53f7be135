//! An SMB client that caches: what it reads under R, what it writes under W, and handles that its
//! program has closed under H. It answers breaks late, wrongly at first, twice, or with less.

use crate::bed::{Bed, content};
use lease::caching::{AcknowledgeError, Break, CachingState, ClientGuid, LeaseHolder, LeaseKey};
use objects::{BreakSink, Open, Store};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The number of a file in the model. No number of a file is this one: the root directory.
pub const ROOT: usize = 0xffff;

/// The state that a client has of one file.
pub struct Had {
    pub open: Arc<Open>,
    pub state: CachingState,
    /// The content as the client has it, or the names of a directory.
    pub copy: Option<Vec<u8>>,
    /// The copy has changes that the server has not.
    pub is_dirty: bool,
    /// A program has it open. Otherwise the handle is only cached.
    pub is_used: bool,
}

#[derive(Default)]
struct Inner {
    had: BTreeMap<usize, Had>,
    /// Files that are being closed.
    closing: Vec<usize>,
    /// Breaks that came before the answer to the open that they are about.
    early: BTreeMap<usize, Break>,
    due: Vec<Break>,
    /// The breaks so far.
    breaks: usize,
}

pub struct Client {
    pub number: u8,
    store: Arc<Store>,
    inner: Mutex<Inner>,
    told: Notify,
}

fn file_of(broken: &Break) -> usize {
    let LeaseHolder::Lease(lease) = broken.holder else { unreachable!("there are no oplocks") };
    let bytes = lease.key.bytes();
    usize::from(u16::from_le_bytes([bytes[0], bytes[1]]))
}

impl Had {
    /// From here on the client uses no more than this.
    fn keeps(&mut self, state: CachingState) {
        self.state = state;
        if !state.has(CachingState::READ) && !self.is_dirty {
            self.copy = None;
        }
    }
}

impl BreakSink for Client {
    fn broken(&self, broken: &Break) -> bool {
        let (file, mut inner) = (file_of(broken), self.inner.lock());
        inner.breaks += 1;
        match inner.had.get_mut(&file) {
            Some(had) => had.keeps(broken.to),
            None => _ = inner.early.insert(file, *broken),
        }
        if broken.acknowledge {
            inner.due.push(*broken);
            self.told.notify_one();
        }
        true
    }
}

impl Client {
    pub fn connect(bed: &Bed, number: u8) -> Arc<Client> {
        let store = Arc::clone(&bed.store);
        let client = Arc::new(Client { number, store, inner: Mutex::default(), told: Notify::new() });
        bed.store.connect(ClientGuid([number; 16]), client.clone());
        client
    }

    pub fn key(&self, file: usize) -> LeaseKey {
        let mut key = [self.number; 16];
        key[..2].copy_from_slice(&(file as u16).to_le_bytes());
        LeaseKey::new(key).unwrap()
    }

    /// Its state of a file. The closure must not wait.
    pub fn with<T>(&self, file: usize, look: impl FnOnce(&mut Had) -> T) -> Option<T> {
        self.inner.lock().had.get_mut(&file).map(look)
    }

    pub fn guid(&self) -> ClientGuid {
        ClientGuid([self.number; 16])
    }

    /// Whether it has a handle on the file, used or only cached, or one that is being closed.
    pub fn has(&self, file: usize) -> bool {
        let inner = self.inner.lock();
        inner.had.contains_key(&file) || inner.closing.contains(&file)
    }

    pub fn files(&self) -> Vec<usize> {
        self.inner.lock().had.keys().copied().collect()
    }

    pub fn breaks(&self) -> usize {
        self.inner.lock().breaks
    }

    /// Notes an open, as it was granted. A break may have come before.
    pub fn note(&self, file: usize, open: Arc<Open>, state: CachingState) {
        let mut inner = self.inner.lock();
        let mut had = Had { open, state, copy: None, is_dirty: false, is_used: true };
        if let Some(broken) = inner.early.remove(&file) {
            had.keeps(broken.to);
        }
        inner.had.insert(file, had);
    }

    /// Writes what only the client has. Nobody else can have changed the file.
    pub async fn write_back(&self, file: usize) {
        let dirty =
            self.with(file, |had| had.is_dirty.then(|| (had.open.clone(), had.copy.clone()))).flatten();
        let Some((open, Some(copy))) = dirty else { return };
        open.write(0, copy.into(), false).await.unwrap();
        self.with(file, |had| {
            had.is_dirty = false;
            had.keeps(had.state);
        });
    }

    /// Closes a file whose program has closed it.
    pub async fn close(&self, file: usize) {
        self.write_back(file).await;
        let had = {
            let mut inner = self.inner.lock();
            let had = inner.had.remove(&file);
            inner.closing.extend(had.as_ref().map(|_| file));
            had
        };
        if let Some(had) = had {
            had.open.close(false).await.unwrap();
            let mut inner = self.inner.lock();
            let at = inner.closing.iter().position(|it| *it == file).unwrap();
            inner.closing.swap_remove(at);
        }
    }

    /// Answers breaks for ever, each in one of the ways that `chance` draws from.
    pub async fn answer(self: Arc<Self>, mut chance: impl FnMut(u64) -> u64) {
        loop {
            self.told.notified().await;
            while let Some(broken) = { self.inner.lock().due.pop() } {
                if chance(3) == 0 {
                    tokio::time::sleep(Duration::from_millis(chance(4))).await;
                }
                let file = file_of(&broken);
                self.write_back(file).await;
                let is_unused = self.with(file, |had| !had.is_used && !broken.to.has(CachingState::HANDLE));
                if is_unused == Some(true) {
                    self.close(file).await;
                    // A program may have opened it meanwhile: then the lease has gone on, with its
                    // break.
                    self.write_back(file).await;
                    self.with(file, |had| had.keeps(CachingState::NONE));
                    drop(self.store.acknowledge(self.guid(), self.key(file), CachingState::NONE));
                    continue;
                }
                self.acknowledge(file, broken, chance(5));
            }
        }
    }

    fn acknowledge(&self, file: usize, broken: Break, how: u64) {
        let say = |keeps| self.store.acknowledge(self.guid(), self.key(file), keeps);
        if how == 0 && broken.to != broken.from {
            let more = say(broken.from);
            assert!(more.is_err(), "more than it may keep");
        }
        let keeps = if how == 1 { CachingState::NONE } else { broken.to };
        // A state that it gives up, it gives up before it says so.
        self.with(file, |had| {
            if how == 1 {
                had.keeps(keeps);
            }
        });
        match say(keeps) {
            Ok(acknowledged) => {
                assert_eq!(acknowledged.state, keeps);
                if how == 2 {
                    let again = say(keeps).err();
                    assert!(matches!(again, Some(AcknowledgeError::NotBreaking)), "{again:?}");
                }
            }
            // Its last open was closed meanwhile, and the file perhaps opened again.
            Err(AcknowledgeError::Unknown | AcknowledgeError::NotBreaking) => {}
            Err(error) => panic!("{broken:?}: {error}"),
        }
    }

    /// The content, out of the cache if there is one.
    pub async fn read(&self, file: usize) -> Vec<u8> {
        let (copy, open) = self.with(file, |had| (had.copy.clone(), had.open.clone())).unwrap();
        if let Some(copy) = copy {
            return copy;
        }
        let read = content(&open).await;
        self.with(file, |had| {
            if had.state.has(CachingState::READ) {
                had.copy = Some(read.clone());
            }
        });
        read
    }
}
