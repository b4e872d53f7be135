//! The store: the table of what is open, the machine's client below, and the clock.

use crate::alarm::Alarm;
use crate::ask::Service;
use crate::cache_holders::CacheHolders;
use crate::table::{Judged, KnownObject, ObjectKey, Table};
use crate::watches::Watches;
use crate::{StoreError, VolumeSpace};
use client::call;
use ident::FileId;
use lease::Time;
use lease::caching::{Act, Actor, Break, ClientGuid, Judgement, LeaseHolder, ObjectId, OpenId};
use namespace::Cred;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use tokio::sync::oneshot;

/// The size of an allocation unit.
pub(crate) const CLUSTER: u32 = 4096;

/// The local object store of a machine.
pub struct Store {
    pub(crate) service: Service,
    table: Mutex<Table>,
    /// The number of open objects. FUSE's calls look at it.
    pub(crate) objects: AtomicUsize,
    pub(crate) caches: CacheHolders,
    pub(crate) watches: Watches,
    /// A stream is written by reading it, changing it and storing it, one at a time.
    pub(crate) stream_writes: tokio::sync::Mutex<()>,
    /// The zero of the store's clock.
    pub(crate) began: Instant,
    /// Wakes the thread that ends breaks which nobody acknowledges.
    pub(crate) alarm: Arc<Alarm>,
}

impl Store {
    /// The store above a client, with nothing open.
    pub(crate) fn above(service: Service) -> Store {
        Store {
            service,
            table: Mutex::default(),
            objects: AtomicUsize::new(0),
            caches: CacheHolders::new(),
            watches: Watches::default(),
            stream_writes: tokio::sync::Mutex::default(),
            began: Instant::now(),
            alarm: Arc::default(),
        }
    }

    /// The space on the volume.
    pub async fn space(&self) -> Result<VolumeSpace, StoreError> {
        let space = self.service.ask(&Cred::default(), call::Space).await?;
        Ok(VolumeSpace { total: space.total, free: space.free, cluster: CLUSTER })
    }

    /// The numbers for `smb status`: opens, holders of leases and oplocks, and breaks under way.
    pub fn counts(&self) -> (usize, usize, usize) {
        self.with(|table, _| {
            let mut holders: Vec<_> =
                table.opens.values().filter_map(|open| Some((open.object, open.holder?))).collect();
            holders.sort_unstable();
            holders.dedup();
            let held = |(object, holder): &(ObjectId, LeaseHolder)| {
                table.objects.get(object).and_then(|known| known.caching.held(*holder))
            };
            let breaking = holders.iter().filter_map(held).filter(|grant| grant.is_breaking).count();
            (table.opens.len(), holders.len(), breaking)
        })
    }

    /// The client that has this open.
    pub fn client_of(&self, open: OpenId) -> Option<ClientGuid> {
        self.with(|table, _| table.opens.get(&open).map(|open| open.client))
    }

    /// Does something with the table, and sets the alarm if it has sent breaks.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Table, Time) -> T) -> T {
        let mut table = self.table.lock();
        let result = act(&mut table, self.now());
        self.done(table);
        result
    }

    fn done(&self, mut table: MutexGuard<'_, Table>) {
        self.objects.store(table.objects.len(), Ordering::Relaxed);
        let breaks = std::mem::take(&mut table.breaks);
        drop(table);
        if breaks {
            self.alarm.set();
        }
    }

    pub(crate) fn now(&self) -> Time {
        Time(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Judges an act until it need not wait. Nothing, if nobody has the object open.
    ///
    /// `judge` runs with the table locked. The future may be dropped: then the act is given up.
    pub(crate) async fn until<T: Send + 'static>(
        &self,
        id: ObjectId,
        judge: impl FnMut(&mut KnownObject, Time, &mut Vec<Break>) -> Result<Judgement<T>, StoreError>
        + Send
        + 'static,
    ) -> Option<Result<T, StoreError>> {
        let (tell, told) = oneshot::channel();
        let given_up = GiveUp { store: self, is_given_up: Arc::default() };
        let flag = Arc::clone(&given_up.is_given_up);
        let judged = self.with(|table, now| {
            let is_given_up = move || flag.load(Ordering::Relaxed);
            table.judge(id, now, judge, move |result| _ = tell.send(result), is_given_up)
        });
        match judged {
            Judged::Done(result) => Some(result),
            Judged::Gone => None,
            Judged::Waits => told.await.ok(),
        }
    }

    /// Waits until an act on the object may go on.
    pub(crate) async fn act(&self, id: ObjectId, act: Act, by: Actor) {
        self.until(id, move |known, now, out| Ok(known.caching.act(now, act, by, out))).await;
    }

    /// Breaks what an act that is done has taken away from those who got it meanwhile.
    pub(crate) fn act_done(&self, id: ObjectId, act: Act, by: Actor) {
        self.with(|table, now| table.act(id, now, act, by));
    }

    /// Tells the holders of leases on a directory that its listing changes. Nobody waits for that.
    pub(crate) fn listing_changes(&self, dir: &FileId, by: Actor) {
        self.with(|table, now| {
            if let Some(id) = table.id(&ObjectKey::of(dir)) {
                table.listed.set_whole(id, false);
                table.act(id, now, Act::ChangeListing, by);
            }
        });
    }

    /// Tells the holders of leases on the directories that show the file that it has other
    /// attributes. Nobody waits for that.
    pub(crate) fn child_changes(&self, file: &FileId, by: Actor) {
        self.with(|table, now| {
            for id in table.listed.dirs(file).to_vec() {
                table.act(id, now, Act::ChangeListing, by);
            }
        });
    }

    /// Notes a new child of a directory. A client whose own act has made it keeps its lease, and
    /// what happens to the child is a change of the listing from here on.
    pub(crate) fn lists(&self, dir: &FileId, child: &FileId) {
        self.with(|table, now| {
            let Some(id) = table.id(&ObjectKey::of(dir)).filter(|id| table.listed.has(*id)) else { return };
            if table.listed.add(id, child).is_none() {
                table.act(id, now, Act::ChangeListing, Actor::Other);
            }
        });
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.alarm.stop();
    }
}

/// Gives up an act when its future is dropped. A judgement under way ends first.
struct GiveUp<'a> {
    store: &'a Store,
    is_given_up: Arc<AtomicBool>,
}

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        let _table = self.store.table.lock();
        self.is_given_up.store(true, Ordering::Relaxed);
    }
}
