//! The file service for FUSE: the machine's own, but a call on what SMB clients cache first breaks
//! their leases, and waits for them where MS-SMB2 §3.3.1.4 says so. While nothing is open over SMB
//! a call costs one look at a number.

use crate::Store;
use crate::table::{Judged, KnownObject, ObjectKey, Table};
use crate::watches::{ADDED, REMOVED};
use client::{Call, Ticket, call};
use file_service::{Activity, CacheHolder, FileService, Responder};
use ident::FileId;
use lease::caching::{AccessMask, Act, Actor, Asks, Break, Judgement, ObjectId, OpenId, Opening, Sharing};
use lease::{Mode, Time};
use namespace::{Cred, Error, Link};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Tickets of calls that wait here have this bit; those of the client do not.
const HERE: u64 = 1 << 63;

/// FUSE's way to the machine's client.
pub(crate) struct StoreService {
    store: Arc<Store>,
    waiting: Arc<WaitingCalls>,
}

/// Calls that wait for SMB clients, or have waited and are under way.
struct WaitingCalls {
    calls: Mutex<BTreeMap<Ticket, WaitingCall>>,
    last: AtomicU64,
    /// Calls that may go on. The thread that judged them holds the table's lock.
    ready: Sender<Ticket>,
}

enum WaitingCall {
    Waits {
        cred: Cred,
        call: Call,
        respond: Responder,
    },
    Passed(Ticket),
    /// It is about to pass.
    Passes,
}

/// The act of a call on an object.
#[derive(Clone, Copy)]
enum Does {
    Act(Act),
    /// It opens a handle with these rights.
    Opens(AccessMask),
}

impl StoreService {
    pub(crate) fn new(store: Arc<Store>) -> StoreService {
        let (ready, due) = channel();
        let waiting = Arc::new(WaitingCalls { calls: Mutex::default(), last: AtomicU64::new(0), ready });
        let (waiters, service) = (Arc::downgrade(&waiting), store.service.0.clone());
        let thread = std::thread::Builder::new().name("smb calls".to_owned());
        if let Err(error) =
            thread.spawn(move || due.into_iter().for_each(|ticket| pass(&waiters, &*service, ticket)))
        {
            tracing::error!(%error, "no thread for FUSE's calls that waited for SMB clients");
        }
        StoreService { store, waiting }
    }

    /// Judges what the call does to objects that are open over SMB. Returns the number of those
    /// that it has to wait for.
    fn judge(
        &self,
        table: &mut Table,
        does: &[(ObjectId, Does)],
        ticket: Ticket,
        left: &Arc<AtomicUsize>,
    ) -> usize {
        let now = self.store.now();
        let mut waits = 0;
        for (object, does) in does.iter().copied() {
            let open = OpenId(table.number());
            let (left, ready) = (Arc::clone(left), self.waiting.ready.clone());
            let judge = move |known: &mut KnownObject, now: Time, out: &mut Vec<Break>| {
                Ok(does.judge(known, open, now, out))
            };
            let then = move |_| {
                if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                    let _ = ready.send(ticket);
                }
            };
            let waiting = Arc::clone(&self.waiting);
            let is_given_up = move || !waiting.calls.lock().contains_key(&ticket);
            waits += usize::from(matches!(table.judge(object, now, judge, then, is_given_up), Judged::Waits));
        }
        waits
    }

    /// Wraps the response: what the call did is done once more to those who were granted caching
    /// meanwhile, and those who watch hear of it.
    fn after(&self, call: &Call, does: Vec<(ObjectId, Does)>, respond: Responder) -> Responder {
        let (store, call) = (Arc::clone(&self.store), call.clone());
        Box::new(move |response| {
            if response.is_ok() {
                for (object, does) in does {
                    if let Does::Act(act) = does {
                        store.act_done(object, act, Actor::Other);
                    }
                }
                store.seen_beside(&call);
            }
            respond(response);
        })
    }
}

impl Does {
    fn judge(self, known: &mut KnownObject, open: OpenId, now: Time, out: &mut Vec<Break>) -> Judgement<()> {
        let access = match self {
            Does::Act(act) => return known.caching.act(now, act, Actor::Other, out),
            Does::Opens(access) => access,
        };
        let opening = Opening {
            access,
            sharing: Sharing::ALL,
            overwrites: false,
            locked: false,
            deleting: false,
            asks: Asks::Nothing,
        };
        match known.caching.open(now, open, opening, out) {
            Ok(Judgement::Waits(holders)) => Judgement::Waits(holders),
            // The client counts FUSE's handles, and refuses one that is excluded.
            Ok(Judgement::Go(_)) | Err(_) => {
                known.caching.close(open);
                Judgement::Go(())
            }
        }
    }
}

/// Returns what a call of FUSE does to objects that are open over SMB.
fn concerned(table: &Table, call: &Call) -> Vec<(ObjectId, Does)> {
    let content = |file: &FileId, act: Act| {
        table.id(&ObjectKey::of(file)).map(|id| (id, Does::Act(act))).into_iter().collect()
    };
    let named = |dir: &FileId, label: &lease::Label, act: Act| {
        let link = Link { dir: dir.clone(), label: label.clone() };
        table.by_link(&link).into_iter().map(move |id| (id, Does::Act(act)))
    };
    let listings = |file: &FileId| {
        table.listings(file).into_iter().map(|id| (id, Does::Act(Act::ChangeListing))).collect::<Vec<_>>()
    };
    match call {
        Call::Read(call::Read { file, .. }) | Call::Seek(call::Seek { file, .. }) => content(file, Act::Read),
        Call::Sync(call::Sync { file }) => {
            content(file, Act::Read).into_iter().chain(listings(file)).collect()
        }
        Call::Close(call::Close { file, open }) if open.has_mode(Mode::AccessWrite) => listings(file),
        Call::Write(call::Write { file, .. }) | Call::Allocate(call::Allocate { file, .. }) => {
            content(file, Act::Write)
        }
        Call::SetAttributes(call::SetAttributes { file, size: Some(_), .. }) => {
            content(file, Act::Resize).into_iter().chain(listings(file)).collect()
        }
        Call::SetAttributes(call::SetAttributes { file, .. })
        | Call::SetXattr(call::SetXattr { file, .. })
        | Call::RemoveXattr(call::RemoveXattr { file, .. }) => listings(file),
        Call::Lock(call::Lock { file, change, .. }) if change.kind.is_some() => content(file, Act::Lock),
        Call::Link(call::Link { file, .. }) => content(file, Act::Link),
        Call::Unlink(call::Unlink { dir, label, .. }) => named(dir, label, Act::Dispose).collect(),
        Call::Rename(call::Rename { from_dir, from, to_dir, to, .. }) => {
            let below = table.below_name(from_dir, |label| label == from).into_iter();
            named(from_dir, from, Act::Rename)
                .chain(named(to_dir, to, Act::Rename))
                .chain(below.map(|id| (id, Does::Act(Act::MoveAbove))))
                .collect()
        }
        Call::OpenFile(call::OpenFile { file, open, .. }) => {
            let rights =
                [(Mode::AccessRead, AccessMask::READ_DATA), (Mode::AccessWrite, AccessMask::WRITE_DATA)];
            let has = rights.into_iter().filter(|(mode, _)| open.has_mode(*mode));
            let access = has.fold(AccessMask::READ_ATTRIBUTES, |access, (_, right)| access.or(right));
            let id = table.id(&ObjectKey::of(file));
            id.map(|id| (id, Does::Opens(access))).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

impl Store {
    /// The file service for FUSE: the machine's own, but calls on what SMB clients cache break
    /// their leases first.
    pub fn file_service(self: &Arc<Self>) -> Arc<dyn FileService> {
        Arc::new(StoreService::new(Arc::clone(self)))
    }

    /// Tells of a change of names by FUSE.
    fn seen_beside(&self, call: &Call) {
        let changed = |dir: &FileId, label: &lease::Label, action: u32| {
            self.listing_changes(dir, Actor::Other);
            self.watches.beside(&Link { dir: dir.clone(), label: label.clone() }, action);
        };
        match call {
            Call::Create(call::Create { dir, label, .. }) | Call::Link(call::Link { dir, label, .. }) => {
                changed(dir, label, ADDED);
            }
            Call::Unlink(call::Unlink { dir, label, .. }) => changed(dir, label, REMOVED),
            Call::Rename(call::Rename { from_dir, from, to_dir, to, .. }) => {
                let old = Link { dir: from_dir.clone(), label: from.clone() };
                let new = Link { dir: to_dir.clone(), label: to.clone() };
                self.with(|table, _| {
                    for open in table.opens.values_mut().filter(|open| open.link.as_ref() == Some(&old)) {
                        open.link = Some(new.clone());
                        if let (Some(last), Some(name)) =
                            (open.path.last_mut(), crate::path::name_of(&new.label, false))
                        {
                            *last = name;
                        }
                        if let (Some(dir), Some(label)) = (open.above.last_mut(), open.labels.last_mut()) {
                            (*dir, *label) = (new.dir.clone(), new.label.clone());
                        }
                    }
                    table.renamed_beside(&old, &new);
                });
                changed(from_dir, from, REMOVED);
                changed(to_dir, to, ADDED);
            }
            _ => {}
        }
    }
}

/// Makes a call that has waited.
fn pass(waiting: &Weak<WaitingCalls>, service: &dyn FileService, ticket: Ticket) {
    let Some(waiting) = waiting.upgrade() else { return };
    let (cred, call, respond) = {
        let mut calls = waiting.calls.lock();
        match calls.insert(ticket, WaitingCall::Passes) {
            Some(WaitingCall::Waits { cred, call, respond }) => (cred, call, respond),
            // It was cancelled meanwhile.
            _ => {
                calls.remove(&ticket);
                return;
            }
        }
    };
    let ending = Arc::clone(&waiting);
    let inner = service.call(
        &cred,
        call,
        Box::new(move |response| {
            ending.calls.lock().remove(&ticket);
            respond(response);
        }),
    );
    if let Some(inner) = inner
        && let Some(state) = waiting.calls.lock().get_mut(&ticket)
    {
        *state = WaitingCall::Passed(inner);
    }
}

impl FileService for StoreService {
    fn call(&self, cred: &Cred, call: Call, respond: Responder) -> Option<Ticket> {
        if self.store.objects.load(Ordering::Relaxed) == 0 {
            return self.store.service.0.call(cred, call, respond);
        }
        let ticket = Ticket(HERE | self.waiting.last.fetch_add(1, Ordering::Relaxed));
        // The call waits for all that it concerns. It counts itself until it is noted.
        let left = Arc::new(AtomicUsize::new(1));
        let (does, waits) = self.store.with(|table, _| {
            let does = concerned(table, &call);
            left.store(1 + does.len(), Ordering::SeqCst);
            let waits = self.judge(table, &does, ticket, &left);
            left.fetch_sub(does.len() - waits, Ordering::SeqCst);
            if waits > 0 {
                let respond: Responder = Box::new(|_| ());
                let state = WaitingCall::Waits { cred: cred.clone(), call: call.clone(), respond };
                self.waiting.calls.lock().insert(ticket, state);
            }
            (does, waits)
        });
        let respond = self.after(&call, does, respond);
        if waits == 0 {
            return self.store.service.0.call(cred, call, respond);
        }
        let mut calls = self.waiting.calls.lock();
        if let Some(WaitingCall::Waits { respond: told, .. }) = calls.get_mut(&ticket) {
            *told = respond;
        }
        drop(calls);
        if left.fetch_sub(1, Ordering::SeqCst) == 1 {
            let _ = self.waiting.ready.send(ticket);
        }
        Some(ticket)
    }

    fn cancel(&self, ticket: Ticket) {
        if ticket.0 & HERE == 0 {
            return self.store.service.0.cancel(ticket);
        }
        let mut calls = self.waiting.calls.lock();
        match calls.remove(&ticket) {
            Some(WaitingCall::Waits { respond, .. }) => {
                drop(calls);
                respond(Err(Error::Interrupted));
            }
            Some(WaitingCall::Passed(inner)) => {
                calls.insert(ticket, WaitingCall::Passed(inner));
                drop(calls);
                self.store.service.0.cancel(inner);
            }
            Some(WaitingCall::Passes) => _ = calls.insert(ticket, WaitingCall::Passes),
            None => {}
        }
    }

    fn give_way(&self, ticket: Ticket) {
        if ticket.0 & HERE == 0 {
            return self.store.service.0.give_way(ticket);
        }
        let passed = match self.waiting.calls.lock().get(&ticket) {
            Some(WaitingCall::Passed(inner)) => Some(*inner),
            Some(WaitingCall::Passes) => return,
            _ => None,
        };
        match passed {
            Some(inner) => self.store.service.0.give_way(inner),
            // Nothing of it is done.
            None => self.cancel(ticket),
        }
    }

    fn look(&self) {
        self.store.service.0.look();
    }

    fn root(&self) -> FileId {
        self.store.service.0.root()
    }

    fn valid_for(&self) -> Duration {
        self.store.service.0.valid_for()
    }

    fn forgotten(&self, files: Vec<FileId>) {
        self.store.service.0.forgotten(files);
    }

    fn activity(&self) -> Option<&Arc<Activity>> {
        self.store.service.0.activity()
    }

    fn register_cache(&self, holder: Arc<dyn CacheHolder>) {
        self.store.caches.register(Arc::clone(&holder));
        self.store.service.0.register_cache(holder);
    }
}
