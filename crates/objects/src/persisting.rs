//! Persistent opens: what a front door keeps of them beyond the end of the process, and how they
//! come back (MS-SMB2 §3.3.5.9.10, §3.3.5.9.12).
//!
//! The machine's session ends with its process, and its handles with that. Another machine may have
//! had the file in between. So a lease comes back only if the content has not been published since:
//! the number of publications says so.

use crate::open::OpenParts;
use crate::opening::key_of;
use crate::permission::empowered;
use crate::underway::Content;
use crate::{
    AccessMask, ByteRange, Caching, CachingState, CreateDisposition, CreateOptions, DosAttributes, Granted,
    LeaseVersion, ObjectPath, Open, OpenId, OpenRequest, Root, Sharing, Store, StoreError,
};
use client::call;
use ident::FileId;
use lease::caching::ClientGuid;
use namespace::Cred;
use std::sync::Arc;

/// The part of a persistent open that outlives the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptOpen {
    /// The open's number. It has the same one when it comes back.
    pub id: OpenId,
    /// The number of the file.
    pub number: u64,
    /// The path from the share's root, as [`Open::path`] has it.
    pub path: String,
    /// The rights that it was granted.
    pub access: AccessMask,
    /// The sharing.
    pub sharing: Sharing,
    /// The options that it was opened with.
    pub options: CreateOptions,
    /// Its path is matched with regard to case.
    pub is_posix: bool,
    /// The lease or oplock that it has. During a break, that of before.
    pub caching: Caching,
    /// The locked ranges, oldest first, and whether each is exclusive.
    pub locks: Vec<(ByteRange, bool)>,
}

impl Open {
    /// Returns what is to be kept of the open.
    pub fn kept(&self) -> KeptOpen {
        let OpenParts { id, number, access, sharing, options, is_posix, .. } = self.parts;
        let caching = match self.granted() {
            Granted::Nothing => Caching::Nothing,
            Granted::Oplock(state) => Caching::Oplock(state),
            Granted::Lease { key, state, version, .. } => Caching::Lease { key, state, version },
        };
        let locks = self.store().with(|table, _| {
            let known = table.objects.get(&self.object());
            let locks = known.into_iter().flat_map(|known| known.locks.of(id));
            locks.map(|lock| (lock.range, lock.exclusive)).collect()
        });
        KeptOpen { id, number, path: self.path(), access, sharing, options, is_posix, caching, locks }
    }

    /// Makes all that was done through the open durable. Returns how often the content has been
    /// published by then; none of a stream, or while another machine keeps that from this one.
    pub async fn persist(&self) -> Result<Option<u64>, StoreError> {
        self.sync().await?;
        if self.is_stream() {
            return Ok(None);
        }
        let version = self.store().version(self.file()).await;
        // A publication that counts already may not be durable yet. One that a crash took back
        // would leave its number to another machine's.
        self.sync().await?;
        Ok(version)
    }

    /// Notes whether its client is away. Nobody else opens the file meanwhile, as MS-SMB2 §3.3.5.9
    /// has it of a persistent open.
    pub fn set_away(&self, is_away: bool) {
        let id = self.id();
        self.store().with(|table, _| {
            let Some(known) = table.objects.get_mut(&self.object()) else { return };
            if is_away { _ = known.away.insert(id) } else { _ = known.away.remove(&id) }
        });
    }

    /// Has the open end without a deletion, if it is dropped: it comes back after a restart. Its
    /// close deletes what is to be deleted.
    pub fn outlives_process(&self) {
        self.state.lock().spares = true;
    }
}

impl Store {
    /// How often content of the file was published, under the machine's lease.
    async fn version(&self, file: &FileId) -> Option<u64> {
        let call = call::Cover { file: file.clone(), write: false, empties: false, xattr: None };
        self.service.ask(&Cred::default(), call).await.ok().map(|covered| covered.version)
    }

    /// Opens again what was open before the process ended. The client is away.
    ///
    /// The rights are those that were granted. The lease or oplock comes back as it was if the
    /// content is still that of the `version`-th publication. Otherwise the open has none, with an
    /// epoch that tells the client to forget what it has cached. The open is refused if an open or
    /// a lock of somebody else is in the way, or if another file has the name.
    pub async fn restore(
        self: &Arc<Self>,
        client: ClientGuid,
        who: &Cred,
        root: &Root,
        (kept, version): (&KeptOpen, Option<u64>),
    ) -> Result<Arc<Open>, StoreError> {
        self.with(|table, _| table.reserve(kept.id));
        let open = match self.restore_with(client, who, root, kept, kept.caching).await? {
            // A lease that is narrower than it was would need a break that nobody can be sent.
            (open, true) if self.is_as_kept(&open, kept, version).await => open,
            (open, _) => {
                open.outlives_process();
                open.end().await;
                self.restore_with(client, who, root, kept, nothing_of(kept.caching)).await?.0
            }
        };
        for (range, exclusive) in &kept.locks {
            open.lock(*range, *exclusive, false).await?;
        }
        open.set_away(true);
        open.outlives_process();
        Ok(open)
    }

    /// Whether what the client may have cached is still so. The open has its lease by now, so a
    /// change that comes later breaks that.
    async fn is_as_kept(&self, open: &Open, kept: &KeptOpen, version: Option<u64>) -> bool {
        let state = match kept.caching {
            Caching::Nothing => return true,
            Caching::Oplock(state) | Caching::Lease { state, .. } => state,
        };
        if state == CachingState::NONE {
            return true;
        }
        version.is_some() && !open.is_stream() && self.version(open.file()).await == version
    }

    /// Opens with this caching. Returns whether all of it was granted.
    async fn restore_with(
        self: &Arc<Self>,
        client: ClientGuid,
        who: &Cred,
        root: &Root,
        kept: &KeptOpen,
        caching: Caching,
    ) -> Result<(Arc<Open>, bool), StoreError> {
        let path = ObjectPath::parse(&kept.path, kept.is_posix)?;
        let place = self.resolve(&empowered(who), root, &path, (true, false)).await?;
        let (entry, _) = place.found.clone().ok_or(StoreError::NotFound)?;
        if entry.ino != kept.number {
            return Err(StoreError::NotFound);
        }
        let request = OpenRequest {
            client,
            access: kept.access,
            sharing: kept.sharing,
            disposition: CreateDisposition::Open,
            options: kept.options,
            attributes: DosAttributes(0),
            allocation: 0,
            eas: Vec::new(),
            security: None,
            caching: as_granted(caching),
            mode: None,
            leases_directories: true,
            is_posix: kept.is_posix,
        };
        let named = (&place, path.stream.as_ref());
        let underway = self.begin_as(kept.id, &request, &key_of(&entry, &path), false, named)?;
        self.admit(&request, &underway, kept.access).await?;
        let modes = if path.is_stream() {
            lease::OpenModes::posix(false, false)
        } else {
            kept.access.modes(kept.sharing)
        };
        let handle = self.counted(self.service.open(who, &entry.file, modes).await?);
        // Locks that stood beside the lease stand beside it again: none begins below 0.
        let content = Content::Kept { size: 0 };
        let grant = self.judge_open(&request, &underway, kept.access, content).await?;
        let open = self.opened(who, root, &request, (underway, &entry, kept.access), handle, &path);
        let is_whole = match caching {
            Caching::Nothing => true,
            Caching::Oplock(state) | Caching::Lease { state, .. } => grant.state == state,
        };
        Ok((open, is_whole))
    }
}

/// The request whose grant is this: a first grant counts the epoch up, unless it is of nothing.
fn as_granted(caching: Caching) -> Caching {
    match caching {
        Caching::Lease { key, state, version: LeaseVersion::V2 { epoch, parent } }
            if state != CachingState::NONE =>
        {
            let version = LeaseVersion::V2 { epoch: epoch.wrapping_sub(1), parent };
            Caching::Lease { key, state, version }
        }
        caching => caching,
    }
}

/// The same lease or oplock without any state. Its epoch jumps by more than a break does, so the
/// client forgets what it has cached.
fn nothing_of(caching: Caching) -> Caching {
    let state = CachingState::NONE;
    match caching {
        Caching::Lease { key, version: LeaseVersion::V2 { epoch, parent }, .. } => {
            let version = LeaseVersion::V2 { epoch: epoch.wrapping_add(2), parent };
            Caching::Lease { key, state, version }
        }
        Caching::Lease { key, version, .. } => Caching::Lease { key, state, version },
        Caching::Oplock(_) | Caching::Nothing => Caching::Nothing,
    }
}
