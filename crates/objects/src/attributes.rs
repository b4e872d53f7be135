//! Attributes and times (MS-FSA §2.1.5.12.6, §2.1.5.15.2).

use crate::dos::{self, ChangeTime, Dos};
use crate::rights;
use crate::store::CLUSTER;
use crate::watches;
use crate::{BasicChange, DosAttributes, Info, Open, Posix, Store, StoreError, TimeChange};
use client::call;
use lease::caching::{Act, Actor};
use namespace::{AttributeChange, Cred, Entry, FileKind, SetTime, Stat};

impl Store {
    /// The attributes that only Windows has.
    pub(crate) async fn dos(&self, entry: &Entry) -> Result<Dos, StoreError> {
        let stored = match self.xattr(&entry.file, dos::NAME).await {
            Err(StoreError::NotSupported) => None,
            stored => stored?,
        };
        Ok(stored.and_then(|value| Dos::parse(&value)).unwrap_or(Dos::of_kind(entry.kind)))
    }
}

impl Open {
    /// Everything that is shown of the object.
    pub async fn info(&self) -> Result<Info, StoreError> {
        let store = self.store();
        let call = call::Peek { file: self.file().clone() };
        let stat = store.service.ask(&self.parts.who, call).await?.value;
        let dos = self.dos().await?;
        let mut info = info(&stat, dos);
        if let Some(stream) = self.stream_name() {
            let length = store.stream(self.file(), &stream).await?.map_or(0, |(_, value)| value.len() as u64);
            (info.size, info.allocation) = (length, length.next_multiple_of(8));
            info.is_directory = false;
            info.attributes.0 &= !DosAttributes::DIRECTORY;
            if info.attributes.0 == 0 {
                info.attributes.0 = DosAttributes::NORMAL;
            }
        }
        store.with(|table, _| {
            if let Some(known) = table.objects.get(&self.object()) {
                info.allocation = info.allocation.max(known.allocation);
                info.delete_pending = known.deleting.is_some();
                info.links = info.links.saturating_sub(u32::from(info.delete_pending));
            }
        });
        Ok(info)
    }

    pub(crate) async fn dos(&self) -> Result<Dos, StoreError> {
        let entry =
            Entry { file: self.file().clone(), kind: self.parts.kind, ino: self.parts.number, position: 0 };
        self.store().dos(&entry).await
    }

    /// Stores the attributes that only Windows has.
    pub(crate) async fn set_dos(&self, dos: Dos) -> Result<(), StoreError> {
        self.set_xattr(dos::NAME, Some(dos.emit())).await
    }

    /// Sets times and attributes (MS-FSA §2.1.5.15.2). Needs WRITE_ATTRIBUTES.
    pub async fn set_basic(&self, change: BasicChange) -> Result<(), StoreError> {
        let BasicChange { created, accessed, written, changed, attributes, mode, uid, gid } = change;
        let times = [created, accessed, written, changed];
        if times.iter().any(Option::is_some) || attributes.is_some() {
            self.require(rights::WRITE_ATTRIBUTES)?;
        }
        if mode.is_some() {
            self.require(rights::WRITE_DAC)?;
        }
        if uid.is_some() || gid.is_some() {
            self.require(rights::WRITE_OWNER)?;
        }
        if let Some(attributes) = attributes {
            let is_other = attributes.has(DosAttributes::DIRECTORY) && !self.is_directory();
            if is_other || attributes.has(DosAttributes::TEMPORARY) && self.is_directory() {
                return Err(StoreError::Invalid);
            }
        }
        let before = self.info().await?;
        let at = |time: Option<TimeChange>| match time {
            Some(TimeChange::At(time)) => Some(SetTime::At(time)),
            _ => None,
        };
        {
            let mut state = self.state.lock();
            match written {
                Some(TimeChange::At(time)) => state.written = Some(time),
                Some(TimeChange::Freeze) => state.written = Some(before.written),
                Some(TimeChange::Thaw) => state.written = None,
                None => {}
            }
            state.accessed = accessed.map_or(state.accessed, |change| change != TimeChange::Thaw);
        }
        let mut change = AttributeChange {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            atime: at(accessed),
            mtime: at(written),
            keeps_owner: false,
        };
        if change != AttributeChange::default() {
            if change.chowns() {
                // A change of owner is the user's own right, and not the open's.
                let chown = AttributeChange { uid, gid, ..AttributeChange::default() };
                self.set_attributes(&self.parts.who, chown).await?;
                (change.uid, change.gid) = (None, None);
            }
            self.set_attributes(&self.empowered(), change).await?;
        }
        let dos = self.dos().await?;
        let mut wanted = dos;
        if let Some(TimeChange::At(time)) = created {
            wanted.created = Some(time);
        }
        if let Some(attributes) = attributes.filter(|attributes| attributes.0 != 0) {
            let kept = dos.attributes & DosAttributes::SPARSE;
            wanted.attributes = attributes.0 & DosAttributes::SETTABLE & !DosAttributes::SPARSE | kept;
        }
        if wanted != dos {
            self.set_dos(wanted).await?;
        }
        if let Some(TimeChange::At(set)) = changed {
            // The first change moves the file's own time to now, which the second one notes.
            self.set_dos(Dos { changed: None, ..wanted }).await?;
            let call = call::Stat { file: self.file().clone() };
            let since = self.store().service.ask(&self.parts.who, call).await?.value.attributes.ctime;
            self.set_dos(Dos { changed: Some(ChangeTime { set, since }), ..wanted }).await?;
        }
        self.attributes_changed(watches::ATTRIBUTES).await;
        Ok(())
    }

    /// Says that a file may have holes, or that it may not (FSCTL_SET_SPARSE). It is a mark for
    /// clients: a file without it has the holes that it has, and shows them as data.
    pub async fn set_sparse(&self, sparse: bool) -> Result<(), StoreError> {
        if self.is_directory() {
            return Err(StoreError::Invalid);
        }
        self.require(rights::WRITE_DATA | rights::APPEND_DATA | rights::WRITE_ATTRIBUTES)?;
        let dos = self.dos().await?;
        let others = dos.attributes & !DosAttributes::SPARSE;
        let attributes = others | if sparse { DosAttributes::SPARSE } else { 0 };
        if attributes != dos.attributes {
            self.set_dos(Dos { attributes, ..dos }).await?;
            self.attributes_changed(watches::ATTRIBUTES).await;
        }
        Ok(())
    }

    /// Whether the file is marked so.
    pub(crate) async fn is_sparse(&self) -> Result<bool, StoreError> {
        Ok(self.dos().await?.attributes & DosAttributes::SPARSE != 0)
    }

    pub(crate) async fn set_attributes(&self, who: &Cred, change: AttributeChange) -> Result<(), StoreError> {
        if change == AttributeChange::default() {
            return Ok(());
        }
        let call =
            call::SetAttributes { file: self.file().clone(), change, size: None, through_handle: true };
        self.change(who, call).await?;
        Ok(())
    }

    /// Tells everybody who may show attributes of the object that they have changed.
    pub(crate) async fn attributes_changed(&self, filter: u32) {
        let store = self.store();
        store.child_changes(self.file(), Actor::Child(self.parts.parent));
        if self.is_directory() {
            store.act_done(self.object(), Act::ChangeListing, Actor::Open(self.id()));
        }
        store.caches.attributes_changed(self.file()).await;
        self.report_modified(filter);
    }
}

/// The information that is shown of an object.
pub(crate) fn info(stat: &Stat, dos: Dos) -> Info {
    let Stat { attributes, size, occupied, mtime } = *stat;
    let kind = match attributes.kind {
        FileKind::Fifo => 0o010_000,
        FileKind::CharDevice => 0o020_000,
        FileKind::Directory => 0o040_000,
        FileKind::BlockDevice => 0o060_000,
        FileKind::Regular => 0o100_000,
        FileKind::Symlink => 0o120_000,
        FileKind::Socket => 0o140_000,
    };
    let is_directory = attributes.kind == FileKind::Directory;
    Info {
        number: attributes.ino,
        attributes: dos.shown(&attributes),
        created: dos.created.unwrap_or(attributes.btime),
        accessed: attributes.atime,
        written: mtime,
        changed: dos.change_time(stat),
        size,
        allocation: if is_directory { 0 } else { occupied.next_multiple_of(u64::from(CLUSTER)) },
        links: attributes.links,
        delete_pending: false,
        is_directory,
        is_link: attributes.kind == FileKind::Symlink,
        posix: Posix {
            mode: kind | u32::from(attributes.mode),
            uid: attributes.uid,
            gid: attributes.gid,
            rdev: attributes.rdev,
        },
    }
}
