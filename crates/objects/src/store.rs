//! The store: the table of what is open, the machine's client below, and the clock.

use crate::ask::Service;
use crate::below::Below;
use crate::recalls::Recalls;
use crate::table::{Judged, Known, Table};
use crate::watches::Watches;
use crate::{BreakSink, Space, StoreError, door};
use client::call;
use file_service::FileService;
use ident::FileId;
use lease::Time;
use lease::caching::{
    AcknowledgeError, Act, Actor, Break, CachingState, ClientGuid, Judgement, LeaseHolder, LeaseId, LeaseKey,
    ObjectId, OpenId,
};
use namespace::Cred;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The size of an allocation unit.
pub(crate) const CLUSTER: u32 = 4096;

/// The local object store of a machine.
pub struct Store {
    pub(crate) service: Service,
    table: Mutex<Table>,
    /// The number of open objects. FUSE's calls look at it.
    pub(crate) objects: AtomicUsize,
    pub(crate) below: Below,
    pub(crate) watches: Watches,
    /// A stream is written by reading it, changing it and storing it, one at a time.
    pub(crate) stream_writes: tokio::sync::Mutex<()>,
    began: Instant,
    alarm: Arc<Alarm>,
}

/// Wakes the thread that ends breaks which nobody acknowledges.
#[derive(Default)]
struct Alarm {
    state: Mutex<AlarmState>,
    changed: Condvar,
}

#[derive(Default)]
struct AlarmState {
    is_set: bool,
    stopped: bool,
}

/// The root directory of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The directory.
    pub dir: FileId,
    /// Nothing is changed through this share: it refuses the rights to.
    pub read_only: bool,
}

/// An acknowledgment that the store has taken. The caller sends its answer, and drops this then:
/// the next break of the lease goes out with that.
#[must_use = "the answer to the acknowledgment goes out before this is dropped"]
pub struct Acknowledged {
    /// The state that the holder has now, for the answer.
    pub state: CachingState,
    store: Arc<Store>,
    object: ObjectId,
    next: Vec<Break>,
}

impl Drop for Acknowledged {
    fn drop(&mut self) {
        let next = std::mem::take(&mut self.next);
        self.store.with(|table, now| {
            table.send(self.object, now, next);
            table.settle(self.object, now);
        });
    }
}

impl Store {
    /// Makes the store of a machine, above its client. It registers itself for revocations.
    pub fn new(service: Arc<dyn FileService>) -> Arc<Store> {
        let store = Arc::new(Store {
            service: Service(service),
            table: Mutex::default(),
            objects: AtomicUsize::new(0),
            below: Below::new(),
            watches: Watches::default(),
            stream_writes: tokio::sync::Mutex::default(),
            began: Instant::now(),
            alarm: Arc::default(),
        });
        store.service.0.register_cache(Arc::new(Recalls::new(&store)));
        let (alarm, weak) = (Arc::clone(&store.alarm), Arc::downgrade(&store));
        let thread = std::thread::Builder::new().name("smb breaks".to_owned());
        if let Err(error) = thread.spawn(move || end_breaks(&alarm, &weak)) {
            tracing::error!(%error, "no thread for breaks that nobody acknowledges");
        }
        store
    }

    /// The file service for FUSE: the machine's own, but calls on what SMB clients cache break
    /// their leases first.
    pub fn door(self: &Arc<Self>) -> Arc<dyn FileService> {
        Arc::new(door::Door::new(Arc::clone(self)))
    }

    /// Finds the directory of a share by its path from the machine's root, with `/` between
    /// components.
    pub async fn root(&self, path: &[u8], read_only: bool) -> Result<Root, StoreError> {
        let mut dir = self.service.0.root();
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let label = lease::Label::new(name).map_err(|_| StoreError::InvalidName)?;
            let found = self.look_up(&Cred::default(), &dir, &label).await?.ok_or(StoreError::NotFound)?;
            if found.0.kind != namespace::FileKind::Directory {
                return Err(StoreError::NotDirectory);
            }
            dir = found.0.file;
        }
        Ok(Root { dir, read_only })
    }

    /// Sets the address for a client's breaks. A later one takes its place.
    pub fn connect(&self, client: ClientGuid, breaks: Arc<dyn BreakSink>) {
        self.with(|table, _| table.connect(client, Some(breaks)));
    }

    /// Forgets the address for a client's breaks, after its last connection is gone. Breaks that
    /// are under way are taken as acknowledged with none. The caller has closed the opens that do
    /// not outlive their connection.
    pub fn disconnect(&self, client: ClientGuid) {
        self.with(|table, now| table.disconnect(client, now));
    }

    /// Takes the acknowledgment of a lease break (MS-SMB2 §3.3.5.22.2), over whichever connection of
    /// the client.
    pub fn acknowledge(
        self: &Arc<Self>,
        client: ClientGuid,
        key: LeaseKey,
        keeps: CachingState,
    ) -> Result<Acknowledged, AcknowledgeError> {
        let lease = LeaseId { client, key };
        self.acknowledge_of(|table| table.clients.object(lease), LeaseHolder::Lease(lease), keeps)
    }

    /// Takes the acknowledgment of an oplock break (MS-SMB2 §3.3.5.22.1): level II is R.
    pub fn acknowledge_oplock(
        self: &Arc<Self>,
        open: OpenId,
        keeps: CachingState,
    ) -> Result<Acknowledged, AcknowledgeError> {
        let object =
            |table: &Table| table.opens.get(&open).map(|open| open.object).ok_or(AcknowledgeError::Unknown);
        self.acknowledge_of(object, LeaseHolder::Oplock(open), keeps)
    }

    fn acknowledge_of(
        self: &Arc<Self>,
        object: impl FnOnce(&Table) -> Result<ObjectId, AcknowledgeError>,
        holder: LeaseHolder,
        keeps: CachingState,
    ) -> Result<Acknowledged, AcknowledgeError> {
        self.with(|table, now| {
            let object = object(table)?;
            let known = table.objects.get_mut(&object).ok_or(AcknowledgeError::Unknown)?;
            let mut next = Vec::new();
            let state = known.caching.acknowledge(now, holder, keeps, &mut next)?;
            Ok(Acknowledged { state, store: Arc::clone(self), object, next })
        })
    }

    /// The space on the volume.
    pub async fn space(&self) -> Result<Space, StoreError> {
        let space = self.service.ask(&Cred::default(), call::Space).await?;
        Ok(Space { total: space.total, free: space.free, cluster: CLUSTER })
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
            self.alarm.state.lock().is_set = true;
            self.alarm.changed.notify_one();
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
        judge: impl FnMut(&mut Known, Time, &mut Vec<Break>) -> Result<Judgement<T>, StoreError> + Send + 'static,
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
            if let Some(id) = table.id(&crate::table::ObjectKey::of(dir)) {
                table.act(id, now, Act::ChangeListing, by);
            }
        });
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.alarm.state.lock().stopped = true;
        self.alarm.changed.notify_one();
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

fn end_breaks(alarm: &Alarm, store: &Weak<Store>) {
    let mut next: Option<Instant> = None;
    loop {
        let mut state = alarm.state.lock();
        while !state.stopped && !state.is_set && next.is_none_or(|next| next > Instant::now()) {
            match next {
                Some(next) => _ = alarm.changed.wait_until(&mut state, next),
                None => alarm.changed.wait(&mut state),
            }
        }
        state.is_set = false;
        if state.stopped {
            return;
        }
        drop(state);
        let Some(store) = store.upgrade() else { return };
        let due = store.with(|table, now| table.expire(now));
        next = due.map(|due| store.began + Duration::from_millis(due.0));
    }
}
