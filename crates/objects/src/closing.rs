//! The end of an open (MS-FSA §2.1.5.5).

use crate::counted::CountedHandle;
use crate::open::lock_owner;
use crate::table::Deleting;
use crate::{Info, Open, OpenId, Store, StoreError};
use client::call;
use ident::FileId;
use lease::caching::{Act, Actor, ObjectId};
use namespace::{Error, Link, LockChange, LockRange, LockSpace};
use std::sync::Arc;

impl Open {
    /// Closes (MS-FSA §2.1.5.5): locks go, and the file does, if it is to be deleted and this is
    /// its last open. With `query` the answer has the object as it was left.
    pub async fn close(&self, query: bool) -> Result<Option<Info>, StoreError> {
        let info = if query { Some(self.info().await?) } else { None };
        self.state.lock().spares = false;
        if self.end().await { Ok(info) } else { Err(StoreError::Closed) }
    }

    /// Ends the open. Returns false if it is closed already.
    pub(crate) async fn end(&self) -> bool {
        let Some(closing) = self.begin_close() else { return false };
        closing.finish(self).await;
        true
    }

    /// Takes what the end of the open needs. Nothing, if it is closed already.
    fn begin_close(&self) -> Option<Closing> {
        let mut state = self.state.lock();
        let handle = state.handle.take()?;
        Some(Closing {
            handle: Some(handle),
            wrote: state.wrote.then(|| (self.file().clone(), Actor::Child(self.parts.parent))),
            store: Arc::clone(self.store()),
            object: self.object(),
            open: self.id(),
        })
    }
}

/// An open that is being closed.
struct Closing {
    handle: Option<CountedHandle>,
    /// The file that it has written, for listings.
    wrote: Option<(FileId, Actor)>,
    store: Arc<Store>,
    object: ObjectId,
    open: OpenId,
}

impl Closing {
    async fn finish(mut self, open: &Open) {
        let store = Arc::clone(&self.store);
        self.unlock();
        if open.deletes_on_close() {
            // The close goes on, whatever the holders of HANDLE say.
            store.act_done(self.object, Act::Dispose, Actor::Open(self.open));
            if let Ok(Some(link)) = open.dispose(true).await {
                store.with(|table, _| {
                    if let Some(known) = table.objects.get_mut(&self.object) {
                        let (by, unlinks) = (open.parts.parent, Default::default());
                        known.deleting.get_or_insert(Deleting { link, by, unlinks });
                    }
                });
                store.watches.deleting(open.file());
            }
        }
        let (deleting, is_last) = store.with(|table, _| {
            let deleting = table.objects.get(&self.object).and_then(|known| known.deleting.clone());
            let of_object = table.opens.values().filter(|other| other.object == self.object);
            (deleting, of_object.count() == 1)
        });
        if open.is_stream() && is_last && (deleting.is_some() || open.deletes_stream()) {
            let _ = open.remove_stream().await;
        }
        let due = deleting.as_ref().filter(|it| it.unlinks.contains(&self.open));
        let is_withdrawn = match due {
            Some(due) => !self.unlink(open, &due.link).await,
            None => false,
        };
        let deleting = deleting.filter(|_| !is_withdrawn);
        let link = open.name();
        if let Some(handle) = self.handle.take() {
            let _ = handle.close().await;
        }
        let removed = match (deleting, link) {
            _ if !is_last || open.is_stream() => None,
            (Some(deleting), _) => Some((deleting.link, Actor::deleting(deleting.by, open.parts.parent))),
            // Another machine may have had it deleted while it was open here.
            (None, Some(link)) if store.leads_to(&link, open.file()).await == Ok(false) => {
                Some((link, Actor::Other))
            }
            (None, _) => None,
        };
        if let Some((link, by)) = removed {
            store.listing_changes(&link.dir, by);
            store.caches.entry_changed(&link).await;
            open.report_removed();
        }
    }

    /// Carries out a deletion by POSIX' rules: the name goes, though others have the file open. It
    /// stays if it is another file's by now. Returns false if the deletion was withdrawn elsewhere.
    async fn unlink(&self, open: &Open, link: &Link) -> bool {
        let (store, file) = (&self.store, open.file().clone());
        let call = call::Unlink {
            dir: link.dir.clone(),
            label: link.label.clone(),
            pending: Some(file.clone()),
            directory: open.is_directory(),
        };
        let unlinked = open.change(&open.empowered(), call).await;
        let is_withdrawn = unlinked == Err(Error::Invalid);
        let is_over = match &unlinked {
            Ok(_) => {
                store.listing_changes(&link.dir, Actor::Child(open.parts.parent));
                store.caches.entry_changed(link).await;
                let links = store.service.ask(&open.parts.who, call::Links { file }).await;
                links.is_ok_and(|links| !links.is_empty())
            }
            Err(_) => is_withdrawn,
        };
        store.unlinked(unlinked);
        if is_over {
            // An open of the file by another name finds nothing pending.
            store.with(|table, _| {
                if let Some(known) = table.objects.get_mut(&self.object) {
                    known.deleting = None;
                }
            });
        }
        !is_withdrawn
    }

    /// Gives the locks of the open back.
    fn unlock(&self) {
        let had = self.store.with(|table, now| {
            let had =
                table.objects.get_mut(&self.object).is_some_and(|known| known.locks.unlock_all(self.open));
            if had {
                table.settle(self.object, now);
            }
            had
        });
        if let Some(file) = self.handle.as_ref().and_then(CountedHandle::file).filter(|_| had) {
            let change = LockChange {
                owner: lock_owner(self.open),
                pid: 0,
                space: LockSpace::Posix,
                range: LockRange::WHOLE,
                kind: None,
            };
            self.store.service.tell(call::Lock { file: file.clone(), change, wait: false });
        }
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        drop(self.handle.take());
        self.store.watches.closed(self.open);
        if let Some((file, by)) = self.wrote.take() {
            self.store.child_changes(&file, by);
        }
        self.store.with(|table, now| {
            table.close(self.object, self.open);
            table.settle(self.object, now);
        });
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let Some(mut closing) = self.begin_close() else { return };
        closing.unlock();
        if let Some(link) = self.name().filter(|_| self.deletes_on_close())
            && let Some(handle) = closing.handle.take()
        {
            // The handle is closed when the client has answered.
            let call = call::SetDisposition { file: self.file().clone(), link: Some(link) };
            self.store().service.0.call(&self.empowered(), call.into(), Box::new(move |_| drop(handle)));
        }
    }
}
