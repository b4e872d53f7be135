//! Opening (MS-FSA §2.1.5.1): the path, the rights, the share modes, the lease, and what becomes of
//! the file.

use crate::counted::CountedHandle;
use crate::dos::Dos;
use crate::open::OpenParts;
use crate::resolve::Place;
use crate::rights::{self, Permitted};
use crate::table::ObjectKey;
use crate::underway::{Content, UnderwayOpen};
use crate::{
    CreateAction, CreateDisposition, CreateOptions, DosAttributes, Granted, Info, ObjectPath, Open,
    OpenRequest, Root, Store, StoreError,
};
use lease::caching::{AccessMask, Act, Actor};
use namespace::{Attributes, Cred, Entry, Error, FileKind, FileSpec, Stat};
use std::sync::Arc;

/// How often an open begins anew because the file came or went meanwhile.
const RACES_MAX: u32 = 16;

/// The mode of a new file if the client does not say.
const FILE_MODE: u16 = 0o644;
/// The mode of a new directory if the client does not say.
const DIRECTORY_MODE: u16 = 0o755;

/// The answer to an open.
#[derive(Debug)]
pub struct Opened {
    /// The open. It is closed by [`Open::close`], or when it is dropped.
    pub open: Arc<Open>,
    /// The action of the open.
    pub action: CreateAction,
    /// The object as it is now.
    pub info: Info,
    /// The lease or oplock state granted, for the answer.
    pub granted: Granted,
    /// The rights that the user has at most (SMB2_CREATE_QUERY_MAXIMAL_ACCESS).
    pub maximal: AccessMask,
}

impl Store {
    /// Opens (MS-FSA §2.1.5.1). It waits for breaks of others' leases that are in its way, for at
    /// most 35 s each. A caller that polls once and is not answered sends STATUS_PENDING. To drop
    /// the future cancels the open.
    pub async fn open(
        self: &Arc<Self>,
        who: &Cred,
        root: &Root,
        path: &ObjectPath,
        request: OpenRequest,
    ) -> Result<Opened, StoreError> {
        request.check(root, path)?;
        let follow = !request.options.has(CreateOptions::REPARSE_POINT);
        for _ in 0..RACES_MAX {
            let place = self.resolve(who, root, path, (request.is_posix, follow)).await?;
            let opened = match place.found.clone() {
                Some(found) => self.open_found(who, root, path, &request, &place, found).await,
                None if !request.disposition.creates() => return Err(StoreError::NotFound),
                None => self.create(who, root, path, &request, &place).await,
            };
            match opened {
                // The file came or went between the look and the act.
                Ok(None) => {}
                Ok(Some(opened)) => return Ok(opened),
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::NotFound)
    }

    /// Opens a file that is there. Nothing, if it is gone.
    async fn open_found(
        self: &Arc<Self>,
        who: &Cred,
        root: &Root,
        path: &ObjectPath,
        request: &OpenRequest,
        place: &Place,
        (entry, attributes): (Entry, Attributes),
    ) -> Result<Option<Opened>, StoreError> {
        let is_directory = entry.kind == FileKind::Directory && !path.is_stream();
        if !path.is_stream() && request.disposition == CreateDisposition::Create {
            // A file is in the way as much as a directory.
            return Err(StoreError::NameCollision);
        }
        if is_directory && request.options.has(CreateOptions::NON_DIRECTORY) {
            return Err(StoreError::IsDirectory);
        }
        if !is_directory && request.options.has(CreateOptions::DIRECTORY) {
            return Err(StoreError::NotDirectory);
        }
        let request = &*request.on(is_directory);
        let mut path = path.clone();
        let has_stream = match &path.stream {
            None => true,
            Some(stream) => match self.stream(&entry.file, stream).await? {
                Some((name, _)) => {
                    path.stream = Some(name);
                    true
                }
                None => false,
            },
        };
        let path = &path;
        if path.is_content && is_directory {
            return Err(match request.options.has(CreateOptions::DIRECTORY) {
                true => StoreError::NotDirectory,
                false => StoreError::IsDirectory,
            });
        }
        if has_stream && request.disposition == CreateDisposition::Create {
            return Err(StoreError::NameCollision);
        }
        if !has_stream && !request.disposition.creates() {
            return Err(StoreError::NotFound);
        }
        if is_directory && request.disposition.overwrites() {
            return Err(StoreError::Invalid);
        }
        let dos = self.dos(&entry).await?;
        let mut maximal = self.maximal(who, root, place, (&entry, &attributes)).await?;
        let is_read_only = dos.shown(&attributes).has(DosAttributes::READ_ONLY) && !is_directory;
        let may_write = maximal.0 & rights::WRITE_DATA != 0;
        if is_read_only {
            maximal.0 &= !(rights::WRITE_DATA | rights::APPEND_DATA);
        }
        let access = rights::granted(request.access, maximal)?;
        let overwrites = request.disposition.overwrites() && has_stream;
        if overwrites && !path.is_stream() {
            overwritable(request, dos, maximal)?;
        }
        // A stream is made or overwritten as its file is written, whatever the open asks for.
        if path.is_stream() && (overwrites || !has_stream) && !may_write {
            return Err(StoreError::AccessDenied);
        }
        if request.options.has(CreateOptions::DELETE_ON_CLOSE) && is_read_only {
            return Err(StoreError::CannotDelete);
        }
        if access.0 & rights::DELETE != 0 && !path.is_stream() {
            self.may_delete_streams(&entry.file).await?;
        }
        let key = key_of(&entry, path);
        let underway = self.begin(request, &key, is_directory, (place, path.stream.as_ref()))?;
        // All that have it open let the open in, those of other machines last, before it takes any
        // content from them. An open that is refused has broken no more than handle caching.
        self.admit(request, &underway, access).await?;
        let modes = if path.is_stream() {
            lease::OpenModes::posix(false, false)
        } else {
            access.modes(request.sharing)
        };
        let handle = match self.service.open(who, &entry.file, modes).await {
            Err(Error::Stale | Error::NotFound) => return Ok(None),
            handle => self.counted(handle?),
        };
        let content = match is_directory || path.is_stream() {
            true => Content::Kept { size: u64::MAX },
            false if overwrites => Content::Emptied,
            false => self.look_at_content(who, &entry.file, access).await?,
        };
        let grant = self.judge_open(request, &underway, access, content).await?;
        let open = self.opened(who, root, request, (underway, &entry, access), handle, path);
        let action = match (request.disposition, overwrites, has_stream) {
            (_, _, false) => {
                open.create_stream().await?;
                CreateAction::Created
            }
            (CreateDisposition::Supersede, true, _) => CreateAction::Superseded,
            (_, true, _) => CreateAction::Overwritten,
            _ => CreateAction::Opened,
        };
        if overwrites {
            open.overwrite(request.attributes, request.allocation).await?;
        }
        let info = open.info().await?;
        Ok(Some(Opened { open, action, info, granted: request.granted(grant), maximal }))
    }

    /// Makes a file, and opens it. Nothing, if another was faster.
    async fn create(
        self: &Arc<Self>,
        who: &Cred,
        root: &Root,
        path: &ObjectPath,
        request: &OpenRequest,
        place: &Place,
    ) -> Result<Option<Opened>, StoreError> {
        if root.read_only {
            return Err(StoreError::AccessDenied);
        }
        let link = place.link.clone().ok_or(StoreError::NotFound)?;
        let is_directory = request.options.has(CreateOptions::DIRECTORY);
        let request = &*request.on(is_directory);
        let is_read_only = request.attributes.has(DosAttributes::READ_ONLY);
        if request.options.has(CreateOptions::DELETE_ON_CLOSE) && is_read_only {
            return Err(StoreError::CannotDelete);
        }
        let everything = Permitted {
            read: true,
            write: true,
            execute: true,
            owns: true,
            delete: true,
            is_directory,
            read_only: false,
        };
        let access = rights::granted(request.access, everything.rights())?;
        let kind = if is_directory { FileKind::Directory } else { FileKind::Regular };
        let mode = request.mode.unwrap_or(if is_directory { DIRECTORY_MODE } else { FILE_MODE });
        let spec = FileSpec::new(kind, mode & 0o7777, 0);
        let modes = if path.is_stream() {
            lease::OpenModes::posix(false, false)
        } else {
            access.modes(request.sharing)
        };
        let by = Actor::Child(request.parent());
        let maker = self.may_add(who, &link.dir, is_directory).await?;
        self.listing_changes(&link.dir, by);
        let (entry, stat, handle) =
            match self.service.create(&maker, (&link.dir, &link.label), spec, modes).await {
                Err(Error::Exists) => return Ok(None),
                Err(Error::Stale | Error::NotDirectory) => return Err(StoreError::PathNotFound),
                created => created?,
            };
        let handle = self.counted(handle);
        self.lists(&link.dir, &entry.file);
        self.listing_changes(&link.dir, by);
        self.caches.entry_changed(&link).await;
        let key = key_of(&entry, path);
        let underway = self.begin(request, &key, is_directory, (place, path.stream.as_ref()))?;
        let grant = self.judge_open(request, &underway, access, Content::Kept { size: 0 }).await?;
        let open = self.opened(who, root, request, (underway, &entry, access), handle, path);
        open.begin_file(request, &stat).await?;
        open.begin_security(request, &link.dir).await?;
        open.report_added();
        let info = open.info().await?;
        let maximal = everything.rights();
        Ok(Some(Opened {
            open,
            action: CreateAction::Created,
            info,
            granted: request.granted(grant),
            maximal,
        }))
    }

    pub(crate) fn opened(
        self: &Arc<Self>,
        who: &Cred,
        root: &Root,
        request: &OpenRequest,
        (mut underway, entry, access): (UnderwayOpen, &Entry, AccessMask),
        handle: CountedHandle,
        path: &ObjectPath,
    ) -> Arc<Open> {
        underway.is_done = true;
        Open::new(
            OpenParts {
                store: Arc::clone(self),
                id: underway.open,
                object: underway.object,
                file: entry.file.clone(),
                is_stream: path.is_stream(),
                who: who.clone(),
                root: root.clone(),
                access,
                sharing: request.sharing,
                options: request.options,
                kind: entry.kind,
                number: entry.ino,
                is_posix: request.is_posix,
                parent: request.parent(),
                holder: request.holder(underway.open),
            },
            handle,
        )
    }
}

pub(crate) fn key_of(entry: &Entry, path: &ObjectPath) -> ObjectKey {
    ObjectKey { file: entry.file.clone(), stream: path.stream.as_deref().map(crate::streams::folded) }
}

/// Whether a file may be overwritten (MS-FSA §2.1.5.1.2.1): a hidden or system file only by an open
/// that says so, too.
fn overwritable(request: &OpenRequest, dos: Dos, maximal: AccessMask) -> Result<(), StoreError> {
    const KEPT: u32 = DosAttributes::HIDDEN | DosAttributes::SYSTEM;
    let lacks = dos.attributes & KEPT & !request.attributes.0;
    if lacks != 0 || maximal.0 & rights::WRITE_DATA == 0 {
        return Err(StoreError::AccessDenied);
    }
    Ok(())
}

impl Open {
    /// Gives a new file what the open brought along.
    async fn begin_file(&self, request: &OpenRequest, stat: &Stat) -> Result<(), StoreError> {
        let kind = stat.attributes.kind;
        let usual = Dos::of_kind(kind);
        // Indexing is not a file's to refuse when it is made.
        let wanted = request.attributes.0 & DosAttributes::SETTABLE & !DosAttributes::NOT_INDEXED;
        let attributes = wanted | usual.attributes;
        if attributes != usual.attributes {
            self.set_dos(Dos { attributes, ..usual }).await?;
        }
        for (name, value) in &request.eas {
            self.set_user_ea(name, value).await?;
        }
        if self.is_stream() {
            self.create_stream().await?;
        }
        if request.allocation > 0 && !self.is_directory() {
            self.allocate(request.allocation).await?;
        }
        Ok(())
    }

    /// Empties a file that is overwritten or superseded, with its named streams, and gives it new
    /// attributes (MS-FSA §2.1.5.1.2).
    async fn overwrite(&self, attributes: DosAttributes, allocation: u64) -> Result<(), StoreError> {
        self.truncate(0).await?;
        if !self.is_stream() {
            self.remove_streams().await?;
            let attributes = attributes.0 & DosAttributes::SETTABLE | DosAttributes::ARCHIVE;
            let dos = self.dos().await?;
            if dos.attributes != attributes {
                self.set_dos(Dos { attributes, ..dos }).await?;
            }
        }
        self.store().act_done(self.object(), Act::Overwrite, Actor::Open(self.id()));
        self.store().child_changes(self.file(), Actor::Child(self.parts.parent));
        if allocation > 0 {
            self.allocate(allocation).await?;
        }
        Ok(())
    }
}
