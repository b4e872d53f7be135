//! Content (MS-FSA §2.1.5.3, §2.1.5.4, §2.1.5.7, §2.1.5.15.1, §2.1.5.15.5).

use crate::rights;
use crate::{ByteRange, Open, StoreError, watches};
use bytes::Bytes;
use client::{AllocateMode, call};
use lease::caching::{Act, Actor};
use namespace::{AttributeChange, Error, LockKind, LockRange, LockSpace, SetTime};

/// A write with this offset goes to the end of the file.
const AT_END: u64 = u64::MAX;

/// The largest size of a file.
const SIZE_MAX: u64 = i64::MAX as u64;

impl Open {
    /// Reads (MS-FSA §2.1.5.3). Needs READ_DATA or EXECUTE. The result is shorter at the end of the
    /// file; at or behind it, [`StoreError::EndOfFile`].
    pub async fn read(&self, offset: u64, length: u32) -> Result<Vec<Bytes>, StoreError> {
        self.require(rights::READ_DATA | rights::EXECUTE)?;
        self.require_content()?;
        self.act(Act::Read).await;
        self.admits(ByteRange { offset, length: length.into() }, false).await?;
        if self.is_stream() {
            return self.read_stream(offset, length).await;
        }
        if offset > SIZE_MAX {
            return Err(StoreError::EndOfFile);
        }
        let quietly = self.state.lock().accessed;
        let call = call::Read { file: self.file().clone(), offset, length, kept: false, quietly };
        let data = self.store().service.ask(&self.parts.who, call).await?;
        if length > 0 && data.iter().all(Bytes::is_empty) {
            return Err(StoreError::EndOfFile);
        }
        Ok(data)
    }

    /// Writes (MS-FSA §2.1.5.4). Needs WRITE_DATA, or APPEND_DATA at or behind the end. All ones
    /// (-1) as the offset writes at the end. With `through` it is durable when this returns.
    pub async fn write(&self, offset: u64, data: Bytes, through: bool) -> Result<u32, StoreError> {
        self.require(rights::WRITE_DATA | rights::APPEND_DATA)?;
        self.require_content()?;
        let may_only_append = self.parts.access.0 & rights::WRITE_DATA == 0;
        let append = offset == AT_END;
        if may_only_append && !append && offset < self.info().await?.size {
            return Err(StoreError::AccessDenied);
        }
        let length = data.len() as u64;
        if !append && offset.checked_add(length).is_none_or(|end| end > SIZE_MAX) {
            return Err(StoreError::Invalid);
        }
        if length == 0 {
            return Ok(0);
        }
        self.act(Act::Write).await;
        let from = if append { self.info().await?.size } else { offset };
        self.admits(ByteRange { offset: from, length }, true).await?;
        let written = if self.is_stream() {
            self.write_stream(from, &data).await?
        } else {
            let call = call::Write { file: self.file().clone(), offset, data, append };
            self.change(&self.parts.who, call).await?
        };
        self.content_changed(Act::Write, watches::WRITTEN).await?;
        if through || self.options().has(crate::CreateOptions::WRITE_THROUGH) {
            self.sync().await?;
        }
        Ok(written)
    }

    /// Makes content and attributes durable (MS-FSA §2.1.5.7).
    pub async fn flush(&self) -> Result<(), StoreError> {
        if !self.is_directory() {
            self.require(rights::WRITE_DATA | rights::APPEND_DATA)?;
            self.act(Act::Read).await;
        }
        self.sync().await?;
        if std::mem::take(&mut self.state.lock().wrote) {
            self.store().child_changes(self.file(), Actor::Child(self.parts.parent));
        }
        Ok(())
    }

    pub(crate) async fn sync(&self) -> Result<(), StoreError> {
        let call = call::Sync { file: self.file().clone() };
        Ok(self.store().service.ask(&self.parts.who, call).await?)
    }

    /// Sets the length (FileEndOfFileInformation). Needs WRITE_DATA.
    pub async fn set_end(&self, size: u64) -> Result<(), StoreError> {
        self.require(rights::WRITE_DATA)?;
        self.require_content()?;
        if size > SIZE_MAX {
            return Err(StoreError::Invalid);
        }
        self.act(Act::Resize).await;
        self.truncate(size).await?;
        self.content_changed(Act::Resize, watches::SIZE | watches::WRITTEN).await
    }

    /// Sets the allocation (FileAllocationInformation). A smaller one than the length cuts the
    /// file.
    pub async fn set_allocation(&self, size: u64) -> Result<(), StoreError> {
        self.require(rights::WRITE_DATA)?;
        self.require_content()?;
        if size > SIZE_MAX {
            return Err(StoreError::Invalid);
        }
        self.act(Act::Resize).await;
        if size < self.info().await?.size {
            self.truncate(size).await?;
        }
        self.store().with(|table, _| {
            if let Some(known) = table.objects.get_mut(&self.object()) {
                known.allocation = 0;
            }
        });
        self.allocate(size).await?;
        self.content_changed(Act::Resize, watches::SIZE).await
    }

    /// Makes `offset..end` read as zeros (FSCTL_SET_ZERO_DATA, MS-FSA §2.1.5.10.38): with a hole,
    /// if the file may have some. The length stays.
    pub async fn zero(&self, offset: u64, end: u64) -> Result<(), StoreError> {
        self.require(rights::WRITE_DATA)?;
        self.require_content()?;
        if end < offset || end > SIZE_MAX {
            return Err(StoreError::Invalid);
        }
        self.act(Act::Write).await;
        self.admits(ByteRange { offset, length: end - offset }, true).await?;
        let size = self.info().await?.size;
        let end = end.min(size);
        if offset >= end {
            return Ok(());
        }
        if self.is_stream() {
            self.write_stream(offset, &vec![0; (end - offset) as usize]).await?;
        } else {
            let what = match self.is_sparse().await? {
                true => AllocateMode::Punch,
                false => AllocateMode::Zero { keep_size: true },
            };
            let call = call::Allocate { file: self.file().clone(), offset, length: end - offset, what };
            self.change(&self.parts.who, call).await?;
        }
        self.content_changed(Act::Write, watches::WRITTEN).await
    }

    /// The ranges that hold data (FSCTL_QUERY_ALLOCATED_RANGES, MS-FSA §2.1.5.10.22): at most
    /// `limit` and one more. A file without the mark that it may have holes shows none.
    pub async fn allocated(&self, range: ByteRange, limit: usize) -> Result<Vec<ByteRange>, StoreError> {
        self.require(rights::READ_DATA)?;
        self.require_content()?;
        let size = self.info().await?.size;
        let end = range.offset.checked_add(range.length).ok_or(StoreError::Invalid)?.min(size);
        let (mut at, mut found) = (range.offset, Vec::new());
        if self.is_stream() || !self.is_sparse().await? {
            found.extend((at < end).then(|| ByteRange { offset: at, length: end - at }));
            return Ok(found);
        }
        self.act(Act::Read).await;
        while at < end && found.len() <= limit {
            let Some(data) = self.seek(at, false).await?.filter(|data| *data < end) else { break };
            let hole = self.seek(data, true).await?.unwrap_or(end).min(end);
            found.push(ByteRange { offset: data, length: hole - data });
            at = hole;
        }
        Ok(found)
    }

    async fn seek(&self, offset: u64, hole: bool) -> Result<Option<u64>, StoreError> {
        let call = call::Seek { file: self.file().clone(), offset, hole };
        match self.store().service.ask(&self.parts.who, call).await {
            Ok(offset) => Ok(Some(offset)),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Cuts or lengthens the content.
    pub(crate) async fn truncate(&self, size: u64) -> Result<(), StoreError> {
        if self.is_stream() {
            return self.resize_stream(size).await;
        }
        let change = AttributeChange::default();
        let call =
            call::SetAttributes { file: self.file().clone(), change, size: Some(size), through_handle: true };
        self.change(&self.parts.who, call).await?;
        Ok(())
    }

    /// Sets space aside.
    pub(crate) async fn allocate(&self, size: u64) -> Result<(), StoreError> {
        if !self.is_stream() && size > 0 {
            let what = AllocateMode::Reserve { keep_size: true };
            let call = call::Allocate { file: self.file().clone(), offset: 0, length: size, what };
            self.change(&self.parts.who, call).await?;
        }
        self.store().with(|table, _| {
            if let Some(known) = table.objects.get_mut(&self.object()) {
                known.allocation =
                    size.checked_next_multiple_of(crate::store::CLUSTER.into()).unwrap_or(size);
            }
        });
        Ok(())
    }

    async fn act(&self, act: Act) {
        self.store().act(self.object(), act, Actor::Open(self.id())).await;
    }

    /// Ends a change of content: whoever was granted caching meanwhile loses it, FUSE's kernel
    /// forgets its pages, and those who watch hear of it.
    async fn content_changed(&self, act: Act, filter: u32) -> Result<(), StoreError> {
        let store = self.store();
        let written = self.state.lock().written;
        if let Some(time) = written {
            let change = AttributeChange { mtime: Some(SetTime::At(time)), ..AttributeChange::default() };
            self.set_attributes(&self.empowered(), change).await?;
        }
        store.act_done(self.object(), act, Actor::Open(self.id()));
        if act == Act::Write {
            // A listing shows what was written when the handle is flushed or closed.
            self.state.lock().wrote = true;
        } else {
            store.child_changes(self.file(), Actor::Child(self.parts.parent));
        }
        store.caches.content_changed(self.file()).await;
        let filter = if self.is_stream() { filter | watches::STREAM_WRITTEN } else { filter };
        self.report_modified(filter);
        Ok(())
    }

    fn require_content(&self) -> Result<(), StoreError> {
        match self.parts.kind {
            _ if self.is_stream() => Ok(()),
            namespace::FileKind::Regular => Ok(()),
            _ => Err(StoreError::NotSupported),
        }
    }

    /// Refuses unless locks let the open read or write the range: those of this machine, and those
    /// of others (MS-FSA §2.1.4.10).
    async fn admits(&self, range: ByteRange, write: bool) -> Result<(), StoreError> {
        let store = self.store();
        let here = store.with(|table, _| {
            table.objects.get(&self.object()).is_none_or(|known| known.locks.admits(self.id(), range, write))
        });
        if !here {
            return Err(StoreError::FileLockConflict);
        }
        let Some(last) = range.last().filter(|_| !self.is_stream()) else { return Ok(()) };
        let call = call::GetLock {
            file: self.file().clone(),
            owner: self.lock_owner(),
            space: LockSpace::Posix,
            range: LockRange { first: range.offset, last },
            kind: if write { LockKind::Write } else { LockKind::Read },
        };
        match store.service.ask(&self.parts.who, call).await? {
            None => Ok(()),
            Some(_) => Err(StoreError::FileLockConflict),
        }
    }
}
