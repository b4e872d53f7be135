//! Byte-range locks (MS-FSA §2.1.5.8, §2.1.5.9). The store judges them among its opens, where each
//! is a lock of its own. The client holds what they cover, so that programs under FUSE and other
//! machines are kept out.

use crate::ranges::ByteLock;
use crate::rights;
use crate::{ByteRange, Open, OpenId, Store, StoreError};
use client::call;
use ident::FileId;
use lease::caching::{Act, Actor, Judgement, ObjectId};
use namespace::{LockChange, LockKind, LockRange, LockSpace};
use std::sync::Arc;

/// A lock that is not held everywhere yet. Dropped, it is nowhere.
struct Locking {
    store: Arc<Store>,
    object: ObjectId,
    file: FileId,
    open: OpenId,
    owner: u64,
    range: ByteRange,
    is_stream: bool,
    is_done: bool,
}

impl Drop for Locking {
    fn drop(&mut self) {
        if !self.is_done {
            for change in self.unlock().unwrap_or_default() {
                self.store.service.tell(call::Lock { file: self.file.clone(), change, wait: false });
            }
            self.settle();
        }
    }
}

impl Locking {
    /// Takes the lock out of the table. Returns what is to be unlocked at the client.
    fn unlock(&self) -> Result<Vec<LockChange>, StoreError> {
        self.store.with(|table, _| {
            let known = table.objects.get_mut(&self.object).ok_or(StoreError::Closed)?;
            let gone = known.locks.unlock(self.open, self.range)?;
            let Some(last) = self.range.last().filter(|_| !self.is_stream) else { return Ok(Vec::new()) };
            let mut changes = Vec::new();
            let free = known.locks.uncovered(self.open, self.range);
            if gone.exclusive && free != [(self.range.offset, last)] {
                // The locks left on it are shared.
                let whole = LockRange { first: self.range.offset, last };
                changes.push(self.change(whole, Some(LockKind::Read)));
            }
            changes
                .extend(free.into_iter().map(|(first, last)| self.change(LockRange { first, last }, None)));
            Ok(changes)
        })
    }

    fn settle(&self) {
        self.store.with(|table, now| table.settle(self.object, now));
    }

    fn change(&self, range: LockRange, kind: Option<LockKind>) -> LockChange {
        LockChange { owner: self.owner, pid: 0, space: LockSpace::Posix, range, kind }
    }
}

impl Open {
    /// Locks a range (MS-FSA §2.1.5.8), at once or, with `wait`, when nothing is in the way. To
    /// drop the future cancels it. Each lock is one of its own; an element list is the caller's
    /// loop.
    pub async fn lock(&self, range: ByteRange, exclusive: bool, wait: bool) -> Result<(), StoreError> {
        self.require(rights::READ_DATA | rights::WRITE_DATA | rights::APPEND_DATA | rights::EXECUTE)?;
        if self.is_directory() {
            return Err(StoreError::Invalid);
        }
        if !range.is_valid() {
            return Err(StoreError::InvalidLockRange);
        }
        let store = self.store();
        store.act(self.object(), Act::Lock, Actor::Open(self.id())).await;
        let lock = ByteLock { open: self.id(), range, exclusive };
        let judged = store.until(self.object(), move |known, _, _| match known.locks.lock(lock) {
            Err(StoreError::LockNotGranted) if wait => Ok(Judgement::Waits(Vec::new())),
            locked => locked.map(Judgement::Go),
        });
        judged.await.ok_or(StoreError::Closed)??;
        let mut locking = self.locking(range);
        for change in self.covering(&locking, exclusive) {
            let call = call::Lock { file: self.file().clone(), change, wait };
            store.service.ask(&self.parts.who, call).await?;
        }
        locking.is_done = true;
        Ok(())
    }

    /// The locks at the client that cover one of the store. A shared one takes nothing away from
    /// the exclusive ones that it is on.
    fn covering(&self, locking: &Locking, exclusive: bool) -> Vec<LockChange> {
        let Some(last) = locking.range.last().filter(|_| !self.is_stream()) else { return Vec::new() };
        let (parts, kind) = if exclusive {
            (vec![(locking.range.offset, last)], LockKind::Write)
        } else {
            let parts = self.store().with(|table, _| {
                let known = table.objects.get(&self.object());
                known.map(|known| known.locks.not_exclusive(self.id(), locking.range))
            });
            (parts.unwrap_or_default(), LockKind::Read)
        };
        let change = |(first, last)| locking.change(LockRange { first, last }, Some(kind));
        parts.into_iter().map(change).collect()
    }

    /// Unlocks a range (MS-FSA §2.1.5.9) that was locked exactly so.
    pub async fn unlock(&self, range: ByteRange) -> Result<(), StoreError> {
        if self.is_directory() {
            return Err(StoreError::Invalid);
        }
        let mut locking = self.locking(range);
        locking.is_done = true;
        for change in locking.unlock()? {
            let call = call::Lock { file: self.file().clone(), change, wait: false };
            self.store().service.ask(&self.parts.who, call).await?;
        }
        locking.settle();
        Ok(())
    }

    fn locking(&self, range: ByteRange) -> Locking {
        Locking {
            store: Arc::clone(self.store()),
            object: self.object(),
            file: self.file().clone(),
            open: self.id(),
            owner: self.lock_owner(),
            range,
            is_stream: self.is_stream(),
            is_done: false,
        }
    }
}
