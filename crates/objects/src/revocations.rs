//! The store as a cache below the machine's client: a recall of the machine's leases breaks those
//! of SMB clients, and waits for their acknowledgments, or for their time.

use crate::Store;
use crate::table::{Judged, ObjectKey, Table};
use client::Invalidation;
use file_service::{CacheHolder, Revocation, Seal};
use ident::FileId;
use lease::caching::{CachingState, ObjectId};
use std::collections::BTreeSet;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};

/// The store, for the machine's client.
pub(crate) struct Revocations {
    store: Weak<Store>,
}

/// Objects of which something is being revoked. Until this is dropped nothing of them counts as
/// covered, nor does a cover that was asked for meanwhile.
struct Revoking {
    store: Arc<Store>,
    objects: Vec<ObjectId>,
}

impl Drop for Revoking {
    fn drop(&mut self) {
        self.store.with(|table, _| {
            for id in &self.objects {
                if let Some(known) = table.objects.get_mut(id) {
                    known.revoking = known.revoking.saturating_sub(1);
                    known.revoked += 1;
                }
                table.forget_unused(*id);
            }
        });
    }
}

impl Revocations {
    pub(crate) fn new(store: &Arc<Store>) -> Revocations {
        Revocations { store: Arc::downgrade(store) }
    }
}

/// The objects that a revocation concerns, with what their clients may keep.
fn concerned(table: &Table, what: &[Invalidation]) -> Vec<(ObjectId, CachingState)> {
    let none = CachingState::NONE;
    let content = |file: &FileId, keep| {
        table.id(&ObjectKey::of(file)).into_iter().map(move |id| (id, keep)).collect::<Vec<_>>()
    };
    let listings = |file: &FileId| table.listings(file).into_iter().map(move |id| (id, none));
    let mut found = Vec::new();
    for what in what {
        match what {
            Invalidation::Pages(file) => {
                found.extend(content(file, none));
                found.extend(listings(file));
            }
            // Pages that programs under FUSE may have mapped, and nothing of a client's.
            Invalidation::Caching(_, CachingState::RWH) => {}
            Invalidation::Caching(file, keep) => found.extend(content(file, *keep)),
            Invalidation::Entries(dir) => found.extend(content(dir, none)),
            // Another machine may be about to rename or delete what has the name: handles that are
            // only cached below it are closed before.
            Invalidation::Entry(dir, folded) => {
                found.extend(content(dir, none));
                let below = table.below_name(dir, |label| namespace::fold(label) == *folded);
                found.extend(below.into_iter().map(|id| (id, CachingState::RW)));
            }
            // Streams are attributes, and listings show them.
            Invalidation::Attributes(file) => {
                found.extend(listings(file));
                let streams = table
                    .of_file(file)
                    .into_iter()
                    .filter(|id| table.objects.get(id).is_some_and(|known| known.key.stream.is_some()));
                found.extend(streams.map(|id| (id, none)));
            }
            Invalidation::Everything => found.extend(table.objects.keys().map(|id| (*id, none))),
        }
    }
    found
}

impl Store {
    fn revoking(self: &Arc<Self>, table: &mut Table, what: &[Invalidation]) -> Revoking {
        let mut objects: Vec<ObjectId> = concerned(table, what).into_iter().map(|(id, _)| id).collect();
        objects.sort_unstable();
        objects.dedup();
        for id in &objects {
            if let Some(known) = table.objects.get_mut(id) {
                known.revoking += 1;
                known.revoked += 1;
            }
            table.listed.forget(*id);
        }
        Revoking { store: Arc::clone(self), objects }
    }

    /// Revokes what is above `keep`. `done` is dropped when nobody has any of it.
    fn recall(&self, table: &mut Table, id: ObjectId, keep: CachingState, done: Sender<()>) {
        let now = self.now();
        let judged = table.judge(
            id,
            now,
            move |known, now, out| Ok(known.caching.recall(now, keep, out)),
            move |_| drop(done),
            || false,
        );
        if matches!(judged, Judged::Done(_)) {
            table.settle(id, now);
        }
    }
}

impl CacheHolder for Revocations {
    fn revoke(&self, what: &[Invalidation], offered: &[Invalidation]) -> Revocation<'_> {
        let Some(store) = self.store.upgrade() else {
            return Revocation { seal: Box::new(|| Box::new(|| ())), kept: BTreeSet::new() };
        };
        let (done, all_done) = channel::<()>();
        let (revoking, kept) = store.with(|table, _| {
            store.watches.elsewhere(what);
            for (id, keep) in concerned(table, what) {
                store.recall(table, id, keep, done.clone());
            }
            let is_kept = |what: &&Invalidation| !concerned(table, std::slice::from_ref(*what)).is_empty();
            let kept: BTreeSet<FileId> =
                offered.iter().filter(is_kept).filter_map(|what| what.file().cloned()).collect();
            (store.revoking(table, what), kept)
        });
        drop(done);
        // Ends when the last waiter is judged: breaks end by themselves.
        let _ = all_done.recv();
        let seal: Seal<'_> = Box::new(move || {
            drop(revoking);
            Box::new(|| ())
        });
        Revocation { seal, kept }
    }

    fn revoke_uncached(&self, what: &[Invalidation]) -> Option<Seal<'_>> {
        let Some(store) = self.store.upgrade() else { return Some(Box::new(|| Box::new(|| ()))) };
        if store.objects.load(std::sync::atomic::Ordering::Relaxed) == 0 {
            store.watches.elsewhere(what);
            // An open may begin right now. It finds nothing covered before its own question.
        }
        let revoking = store.with(|table, _| {
            let cached = concerned(table, what).iter().any(|(id, keep)| {
                let objects = table.opens.values().filter(|open| open.object == *id);
                let held = |open: &crate::table::OpenRecord| {
                    let known = table.objects.get(id)?;
                    known.caching.held(open.holder?)
                };
                objects.filter_map(held).any(|grant| !keep.has(grant.state) || grant.is_breaking)
            });
            if cached {
                return None;
            }
            // Nobody has it, so nothing waits, and the cover is lower from here on.
            let (done, _) = channel();
            for (id, keep) in concerned(table, what) {
                store.recall(table, id, keep, done.clone());
            }
            store.watches.elsewhere(what);
            Some(store.revoking(table, what))
        })?;
        Some(Box::new(move || {
            drop(revoking);
            Box::new(|| ())
        }))
    }

    fn revoke_soon(&self, what: Vec<Invalidation>) {
        let Some(store) = self.store.upgrade() else { return };
        let (done, _) = channel();
        let revoking = store.with(|table, _| {
            store.watches.elsewhere(&what);
            for (id, keep) in concerned(table, &what) {
                store.recall(table, id, keep, done.clone());
            }
            store.revoking(table, &what)
        });
        drop(revoking);
    }
}
