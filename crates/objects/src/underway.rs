//! An open that is under way: what the request asks for, and its judgement beside the other opens
//! of the machine.

use crate::resolve::Place;
use crate::rights;
use crate::table::{ObjectKey, OpenRecord};
use crate::{
    Caching, CreateDisposition, CreateOptions, Granted, ObjectPath, OpenRequest, Root, Store, StoreError,
};
use client::call;
use ident::FileId;
use lease::caching::{
    AccessMask, Asks, CachingState, Grant, Judgement, LeaseHolder, LeaseId, LeaseVersion, ObjectId, OpenId,
    Opening, Sharing,
};
use namespace::{Cred, Error};
use std::borrow::Cow;
use std::sync::Arc;

impl CreateDisposition {
    pub(crate) fn overwrites(self) -> bool {
        use CreateDisposition::{Overwrite, OverwriteIf, Supersede};
        matches!(self, Supersede | Overwrite | OverwriteIf)
    }

    pub(crate) fn creates(self) -> bool {
        !matches!(self, CreateDisposition::Open | CreateDisposition::Overwrite)
    }
}

impl OpenRequest {
    /// Checks what needs no look at the file (MS-SMB2 §3.3.5.9, MS-FSA §2.1.5.1, phase 1).
    pub(crate) fn check(&self, root: &Root, path: &ObjectPath) -> Result<(), StoreError> {
        let options = self.options;
        let (asked, at_most) = rights::specific(self.access);
        if asked == 0 && !at_most {
            return Err(StoreError::AccessDenied);
        }
        let is_directory = options.has(CreateOptions::DIRECTORY);
        if is_directory && (options.has(CreateOptions::NON_DIRECTORY) || self.disposition.overwrites()) {
            return Err(StoreError::Invalid);
        }
        if is_directory && path.is_stream() {
            return Err(StoreError::NotDirectory);
        }
        if options.has(CreateOptions::DELETE_ON_CLOSE) && asked & rights::DELETE == 0 {
            return Err(StoreError::AccessDenied);
        }
        if options.has(CreateOptions::BY_FILE_ID) {
            return Err(StoreError::NotSupported);
        }
        if root.read_only && asked & rights::CHANGES != 0 {
            return Err(StoreError::AccessDenied);
        }
        Ok(())
    }

    /// The request as it counts for a directory, or for anything else.
    pub(crate) fn on(&self, is_directory: bool) -> Cow<'_, OpenRequest> {
        match self.caching {
            Caching::Lease { .. } if is_directory && !self.leases_directories => {
                Cow::Owned(OpenRequest { caching: Caching::Nothing, ..self.clone() })
            }
            _ => Cow::Borrowed(self),
        }
    }

    pub(crate) fn holder(&self, open: OpenId) -> Option<LeaseHolder> {
        match self.caching {
            Caching::Nothing => None,
            Caching::Oplock(_) => Some(LeaseHolder::Oplock(open)),
            Caching::Lease { key, .. } => Some(LeaseHolder::Lease(LeaseId { client: self.client, key })),
        }
    }

    pub(crate) fn asks(&self) -> Asks {
        match self.caching {
            Caching::Nothing => Asks::Nothing,
            Caching::Oplock(state) => Asks::Oplock(state),
            Caching::Lease { key, state, version } => {
                Asks::Lease { lease: LeaseId { client: self.client, key }, state, version }
            }
        }
    }

    /// The request to the objects of this machine, as far as the file does not matter.
    fn opening(&self, access: AccessMask) -> Opening {
        let (sharing, asks) = (self.sharing, self.asks());
        Opening { access, sharing, overwrites: false, locked: false, deleting: false, asks }
    }

    /// The key of the lease on the parent directory, as the open gave it.
    pub(crate) fn parent(&self) -> Option<lease::caching::LeaseKey> {
        match self.caching {
            Caching::Lease { version: LeaseVersion::V2 { parent, .. }, .. } => parent,
            _ => None,
        }
    }

    pub(crate) fn granted(&self, grant: Grant) -> Granted {
        match self.caching {
            Caching::Nothing => Granted::Nothing,
            Caching::Oplock(_) if grant.state == CachingState::NONE => Granted::Nothing,
            Caching::Oplock(_) => Granted::Oplock(grant.state),
            Caching::Lease { key, .. } => Granted::Lease {
                key,
                state: grant.state,
                is_breaking: grant.is_breaking,
                version: grant.version,
            },
        }
    }
}

/// The content of an object that is being opened.
#[derive(Clone, Copy)]
pub(crate) enum Content {
    /// It goes with the open.
    Emptied,
    /// It is so long.
    Kept { size: u64 },
    /// It was so long, and another machine may be writing it.
    Elsewhere { size: u64 },
}

/// An open that is under way. If it does not come about, it leaves nothing.
pub(crate) struct UnderwayOpen {
    store: Arc<Store>,
    is_directory: bool,
    pub(crate) object: ObjectId,
    pub(crate) open: OpenId,
    pub(crate) is_done: bool,
}

impl Drop for UnderwayOpen {
    fn drop(&mut self) {
        let (object, open) = (self.object, self.open);
        self.store.with(|table, now| {
            if let Some(known) = table.objects.get_mut(&object) {
                known.pins = known.pins.saturating_sub(1);
            }
            if self.is_done {
                return;
            }
            table.close(object, open);
            table.settle(object, now);
        });
    }
}

impl Store {
    /// Notes an open that is under way, with its name, its client and its lease.
    pub(crate) fn begin(
        self: &Arc<Self>,
        request: &OpenRequest,
        key: &ObjectKey,
        is_directory: bool,
        named: (&Place, Option<&String>),
    ) -> Result<UnderwayOpen, StoreError> {
        let open = self.with(|table, _| {
            // A client that is away is waited for, whatever the open would break (MS-SMB2
            // §3.3.5.9).
            let known = table.id(key).and_then(|id| table.objects.get(&id));
            if known.is_some_and(|known| !known.away.is_empty()) {
                return Err(StoreError::NotAvailable);
            }
            Ok(OpenId(table.number()))
        })?;
        self.begin_as(open, request, key, is_directory, named)
    }

    /// The same, with the number that the open is to have.
    pub(crate) fn begin_as(
        self: &Arc<Self>,
        open: OpenId,
        request: &OpenRequest,
        key: &ObjectKey,
        is_directory: bool,
        (place, stream): (&Place, Option<&String>),
    ) -> Result<UnderwayOpen, StoreError> {
        let path = place.path.clone();
        self.with(|table, _| {
            let object = table.id_or_new(key, is_directory);
            let holder = request.holder(open);
            if let Some(LeaseHolder::Lease(lease)) = holder
                && table.clients.bind(lease, object).is_err()
            {
                table.forget_unused(object);
                return Err(StoreError::Invalid);
            }
            if let Some(known) = table.objects.get_mut(&object) {
                known.pins += 1;
            }
            let record = OpenRecord {
                object,
                client: request.client,
                holder,
                link: place.link.clone(),
                stream: stream.cloned(),
                above: place.above.clone(),
                labels: place.labels.clone(),
                path,
            };
            table.opens.insert(open, record);
            Ok(UnderwayOpen { store: Arc::clone(self), is_directory, object, open, is_done: false })
        })
    }

    /// Waits until a moment's open of the object could go on beside all others of this machine.
    pub(crate) async fn beside(
        &self,
        object: ObjectId,
        access: AccessMask,
        sharing: Sharing,
    ) -> Result<(), StoreError> {
        let open = OpenId(self.with(|table, _| table.number()));
        let judged = self.until(object, move |known, now, out| {
            let asks = Asks::Nothing;
            let opening =
                Opening { access, sharing, overwrites: false, locked: false, deleting: false, asks };
            match known.caching.open(now, open, opening, out) {
                Ok(Judgement::Waits(holders)) => Ok(Judgement::Waits(holders)),
                Ok(Judgement::Go(_)) => {
                    known.caching.close(open);
                    Ok(Judgement::Go(()))
                }
                Err(_) => Err(StoreError::SharingViolation),
            }
        });
        judged.await.unwrap_or(Ok(()))
    }

    /// Waits until nobody's open of a stream of the file stands in the way of its deletion.
    pub(crate) async fn may_delete_streams(&self, file: &FileId) -> Result<(), StoreError> {
        let objects = self.with(|table, _| table.streams_of(file));
        for object in objects {
            self.beside(object, AccessMask::DELETE, Sharing::ALL).await?;
        }
        Ok(())
    }

    /// Waits until nobody's open of the directory stands in the way of a new name in it, on
    /// whichever machine: whoever may delete it, or does not share writing (MS-FSA §2.1.5.15.11).
    pub(crate) async fn may_change_names(self: &Arc<Self>, dir: &FileId) -> Result<(), StoreError> {
        let (access, sharing) = (AccessMask::WRITE_DATA, Sharing(Sharing::READ.0 | Sharing::WRITE.0));
        if let Some(object) = self.with(|table, _| table.id(&ObjectKey::of(dir))) {
            self.beside(object, access, sharing).await?;
        }
        match self.service.open(&Cred::default(), dir, access.modes(sharing)).await {
            // The act itself says so.
            Err(Error::Stale | Error::NotFound) => Ok(()),
            handle => Ok(self.counted(handle?).close().await?),
        }
    }

    /// Waits until the access and the sharing of the open go beside all other opens of this
    /// machine. No data is taken from anybody for that.
    pub(crate) async fn admit(
        &self,
        request: &OpenRequest,
        underway: &UnderwayOpen,
        access: AccessMask,
    ) -> Result<(), StoreError> {
        let opening = request.opening(access);
        let judged = self.until(underway.object, move |known, now, out| {
            if known.deleting.is_some() {
                return Err(StoreError::DeletePending);
            }
            known.caching.admit(now, opening, out).map_err(|_| StoreError::SharingViolation)
        });
        judged.await.ok_or(StoreError::Closed)?
    }

    /// The length of a file that is opened and not overwritten.
    ///
    /// To know it, the machine takes write caching from other machines as the open does. An open
    /// for attributes alone takes nothing. It caches nothing beside a machine that may be writing.
    pub(crate) async fn look_at_content(
        &self,
        who: &Cred,
        file: &FileId,
        access: AccessMask,
    ) -> Result<Content, StoreError> {
        if access.is_stat_to_oplocks() {
            let told = self.service.ask(who, call::Peek { file: file.clone() }).await?;
            let size = told.value.size;
            return Ok(if told.uncached { Content::Elsewhere { size } } else { Content::Kept { size } });
        }
        let size = self.service.ask(who, call::Stat { file: file.clone() }).await?.value.size;
        Ok(Content::Kept { size })
    }

    /// Waits until the open may go on beside all others of this machine, and grants what fits.
    pub(crate) async fn judge_open(
        &self,
        request: &OpenRequest,
        underway: &UnderwayOpen,
        access: AccessMask,
        content: Content,
    ) -> Result<Grant, StoreError> {
        let (object, open) = (underway.object, underway.open);
        let is_directory = underway.is_directory;
        // Nothing is granted without READ, and no oplock on a directory.
        let wanted = match request.asks() {
            Asks::Lease { state, .. } => state.of_lease(),
            Asks::Oplock(state) if !is_directory => state,
            Asks::Oplock(_) | Asks::Nothing => CachingState::NONE,
        };
        let (overwrites, size) = match content {
            Content::Emptied => (true, 0),
            Content::Kept { size } | Content::Elsewhere { size } => (false, size),
        };
        if wanted != CachingState::NONE && !matches!(content, Content::Elsewhere { .. }) {
            self.cover(object, is_directory, (wanted.has(CachingState::WRITE), overwrites)).await;
        }
        let opening = request.opening(access);
        let judged = self.until(object, move |known, now, out| {
            if known.deleting.is_some() {
                return Err(StoreError::DeletePending);
            }
            let opening = Opening { overwrites, locked: known.locks.begins_below(size), ..opening };
            known.caching.open(now, open, opening, out).map_err(|_| StoreError::SharingViolation)
        });
        judged.await.ok_or(StoreError::Closed)?
    }
}
