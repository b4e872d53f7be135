//! A state that nobody changes, file by file: for taking files out of a backup.
//!
//! Nothing that was read is kept, so memory does not grow with the tree; and a row that cannot be
//! read is an error at once, since no server stops over it here.

use crate::{Corrupt, Directory, Store};
use ident::FileId;
use lease::Label;
use namespace::{Attributes, ContentHead, Entry, Extent, FileKind, Timestamp};

/// A file as the state has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its attributes.
    pub attributes: Attributes,
    /// Of its content: how long that is, and its key.
    pub content: ContentHead,
    /// When its content, or a directory's entries, last changed.
    pub mtime: Timestamp,
}

impl Directory {
    /// The file, if there is one.
    pub fn found(&self, store: &dyn Store, file: &FileId) -> Result<Option<Found>, Corrupt> {
        self.read_soundly(store, |files| {
            let record = files.record(file)?;
            let mtime = if record.is_directory() { record.times.mtime } else { record.content.mtime };
            Some(Found { attributes: record.attributes, content: record.content, mtime })
        })
    }

    /// The first `limit` entries of the directory whose position is above `after`, in the order of
    /// positions.
    pub fn entries(
        &self,
        store: &dyn Store,
        dir: &FileId,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(Label, Entry)>, Corrupt> {
        self.read_soundly(store, |files| files.page(dir, after, limit))
    }

    /// Its extended attributes, access control lists among them.
    pub fn xattrs(&self, store: &dyn Store, file: &FileId) -> Result<Vec<(Label, Vec<u8>)>, Corrupt> {
        self.read_soundly(store, |files| files.xattrs(file))
    }

    /// Content that stands in the metadata whole, sealed; empty if it does not.
    pub fn inline(&self, store: &dyn Store, file: &FileId) -> Result<Vec<u8>, Corrupt> {
        self.read_soundly(store, |files| files.inline(file))
    }

    /// Where a symbolic link leads to; none if the file is none.
    pub fn target(&self, store: &dyn Store, file: &FileId) -> Result<Option<Vec<u8>>, Corrupt> {
        self.read_soundly(store, |files| {
            let is_link = files.record(file)?.attributes.kind == FileKind::Symlink;
            is_link.then(|| files.inline(file))
        })
    }

    /// The first `limit` extents of its content that end above `offset`, in order.
    pub fn extents(
        &self,
        store: &dyn Store,
        file: &FileId,
        offset: u64,
        limit: usize,
    ) -> Result<Vec<Extent>, Corrupt> {
        self.read_soundly(store, |files| files.extents(file, offset, limit))
    }
}
