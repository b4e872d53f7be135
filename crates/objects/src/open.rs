//! An open: what it is, and who has it. Acts through it are in modules of their own. Each
//! act checks the rights that the open was granted.

use crate::counted::CountedHandle;
use crate::cursor::Cursor;
use crate::{AccessMask, CreateOptions, Granted, OpenId, Root, Sharing, Store, StoreError};
use file_service::FileCall;
use ident::FileId;
use lease::caching::{ClientGuid, Grant, LeaseHolder, LeaseKey, ObjectId};
use namespace::{Cred, Error, FileKind, Timestamp};
use parking_lot::Mutex;
use std::sync::Arc;

/// An open of a file, directory or stream.
pub struct Open {
    pub(crate) parts: OpenParts,
    pub(crate) state: Mutex<OpenState>,
}

/// The parts that stay the same while it is open.
pub(crate) struct OpenParts {
    pub(crate) store: Arc<Store>,
    pub(crate) id: OpenId,
    pub(crate) object: ObjectId,
    pub(crate) file: FileId,
    pub(crate) is_stream: bool,
    pub(crate) who: Cred,
    pub(crate) root: Root,
    pub(crate) access: AccessMask,
    pub(crate) sharing: Sharing,
    pub(crate) options: CreateOptions,
    pub(crate) kind: FileKind,
    pub(crate) number: u64,
    pub(crate) is_posix: bool,
    pub(crate) parent: Option<LeaseKey>,
    pub(crate) holder: Option<LeaseHolder>,
}

#[derive(Default)]
pub(crate) struct OpenState {
    /// The client's handle, until the open is closed.
    pub(crate) handle: Option<CountedHandle>,
    /// It has written what no listing needs to show yet.
    pub(crate) wrote: bool,
    pub(crate) cursor: Cursor,
    /// Its end deletes nothing: the open goes on, elsewhere or after a restart.
    pub(crate) spares: bool,
    /// The times that the open's own acts do not move.
    pub(crate) written: Option<Timestamp>,
    pub(crate) accessed: bool,
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open").field("id", &self.parts.id).field("file", &self.parts.file).finish()
    }
}

impl Open {
    pub(crate) fn new(parts: OpenParts, handle: CountedHandle) -> Arc<Open> {
        let state = OpenState { handle: Some(handle), ..OpenState::default() };
        Arc::new(Open { parts, state: Mutex::new(state) })
    }

    /// Its number, which no other open of this store has or will have.
    pub fn id(&self) -> OpenId {
        self.parts.id
    }

    /// The rights that it was granted, without generic ones.
    pub fn access(&self) -> AccessMask {
        self.parts.access
    }

    /// The options that it was opened with.
    pub fn options(&self) -> CreateOptions {
        self.parts.options
    }

    /// The client that opened it.
    pub fn client(&self) -> ClientGuid {
        self.store().client_of(self.id()).unwrap_or(ClientGuid([0; 16]))
    }

    /// Whether it is a directory's.
    pub fn is_directory(&self) -> bool {
        self.parts.kind == FileKind::Directory && !self.is_stream()
    }

    /// Whether it is a named stream's.
    pub fn is_stream(&self) -> bool {
        self.parts.is_stream
    }

    /// The name by which it was opened, in its exact case, from the share's root:
    /// `dir\file:stream`. It follows renames that go through this store.
    pub fn path(&self) -> String {
        let path = self.store().with(|table, _| {
            let open = table.opens.get(&self.id())?;
            let stream = open.stream.as_ref().map(|stream| format!(":{stream}"));
            Some(open.path.join("\\") + &stream.unwrap_or_default())
        });
        path.unwrap_or_default()
    }

    /// The lease or oplock that it has now: for a reconnect, and a replay.
    pub fn granted(&self) -> Granted {
        let Some(holder) = self.parts.holder else { return Granted::Nothing };
        match (holder, self.held(holder)) {
            (LeaseHolder::Oplock(_), Some(grant)) => Granted::Oplock(grant.state),
            (LeaseHolder::Lease(lease), Some(grant)) => Granted::Lease {
                key: lease.key,
                state: grant.state,
                is_breaking: grant.is_breaking,
                version: grant.version,
            },
            (_, None) => Granted::Nothing,
        }
    }

    /// The holder of its lease or oplock, while a break of that waits for an acknowledgment.
    pub fn breaking(&self) -> Option<LeaseHolder> {
        let holder = self.parts.holder?;
        self.held(holder).filter(|grant| grant.is_breaking).map(|_| holder)
    }

    fn held(&self, holder: LeaseHolder) -> Option<Grant> {
        self.store().with(|table, _| table.objects.get(&self.object())?.caching.held(holder))
    }

    /// Moves a durable open to another connection's client (reconnect): later breaks of its oplock
    /// go there.
    pub fn adopt(&self, client: ClientGuid) {
        self.store().with(|table, _| {
            if let Some(open) = table.opens.get_mut(&self.id()) {
                open.client = client;
            }
        });
    }

    /// Whether its end deletes the file, or the name that it was opened by.
    pub(crate) fn deletes_on_close(&self) -> bool {
        self.options().has(CreateOptions::DELETE_ON_CLOSE) && !self.is_stream() && !self.state.lock().spares
    }

    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.parts.store
    }

    pub(crate) fn object(&self) -> ObjectId {
        self.parts.object
    }

    pub(crate) fn file(&self) -> &FileId {
        &self.parts.file
    }

    /// The name of its stream, in its exact case.
    pub(crate) fn stream_name(&self) -> Option<String> {
        self.store().with(|table, _| table.opens.get(&self.id())?.stream.clone())
    }

    /// Changes something. Nothing changes through a share that may only be read, whatever rights
    /// the act needs otherwise.
    pub(crate) async fn change<C: FileCall>(&self, who: &Cred, call: C) -> Result<C::Reply, Error> {
        if self.parts.root.read_only {
            return Err(Error::AccessDenied);
        }
        self.store().service.ask(who, call).await
    }

    /// Refuses unless the open has one of these rights, and is open.
    pub(crate) fn require(&self, rights: u32) -> Result<(), StoreError> {
        if self.state.lock().handle.is_none() {
            return Err(StoreError::Closed);
        }
        if self.parts.access.0 & rights == 0 { Err(StoreError::AccessDenied) } else { Ok(()) }
    }

    /// The user with the rights that the open stands for: they were checked when it was opened.
    pub(crate) fn empowered(&self) -> Cred {
        crate::permission::empowered(&self.parts.who)
    }

    /// The name by which it was opened.
    pub(crate) fn name(&self) -> Option<namespace::Link> {
        self.store().with(|table, _| table.opens.get(&self.id()).and_then(|open| open.link.clone()))
    }

    /// The owner of its locks, for the client: no number of FUSE's kernel.
    pub(crate) fn lock_owner(&self) -> u64 {
        lock_owner(self.id())
    }
}

/// The owner of an open's locks. The kernel's owners are hashes of 64 bits.
pub(crate) fn lock_owner(open: OpenId) -> u64 {
    open.0 ^ 0x534d_4200_0000_0000
}
