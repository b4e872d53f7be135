//! A read-only view of a state, file by file: for taking files out of a backup.
//!
//! The view keeps nothing that it reads, so memory does not grow with the tree. A row that cannot
//! be read is an error at once, since no server stops over it here.

use crate::{Corrupt, Directory, Store};
use ident::FileId;
use lease::Label;
use namespace::{Attributes, ContentHead, Entry, Extent, FileKind, Links, Timestamp};

/// A file in the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its attributes.
    pub attributes: Attributes,
    /// The length and the key of its content.
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

    /// The links of the file, if there is one.
    pub fn links(&self, store: &dyn Store, file: &FileId) -> Result<Option<Links>, Corrupt> {
        self.read_soundly(store, |files| files.record(file).map(|record| record.links.clone()))
    }

    /// The first `limit` entries of the directory whose position is greater than `after`, in the
    /// order of positions.
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

    /// Sealed content that stands in the metadata whole; empty if there is none.
    pub fn inline(&self, store: &dyn Store, file: &FileId) -> Result<Vec<u8>, Corrupt> {
        self.read_soundly(store, |files| files.inline(file))
    }

    /// The target of a symbolic link; `None` for any other file.
    pub fn target(&self, store: &dyn Store, file: &FileId) -> Result<Option<Vec<u8>>, Corrupt> {
        self.read_soundly(store, |files| {
            let is_link = files.record(file)?.attributes.kind == FileKind::Symlink;
            is_link.then(|| files.inline(file))
        })
    }

    /// The first `limit` extents of its content that end beyond `offset`, in order.
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
