//! Writes notifications in the kernel's own form.

use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;

use crate::notices::Kernel;

/// `enum fuse_notify_code`, linux/fuse.h.
const INVAL_INODE: i32 = 2;
const INVAL_ENTRY: i32 = 3;
const INC_EPOCH: i32 = 8;

/// `FUSE_EXPIRE_ONLY`.
const EXPIRE_ONLY: u32 = 1;

/// Sends notifications to the kernel.
#[derive(Debug)]
pub(crate) struct Notifier(OwnedFd);

impl Notifier {
    pub(super) fn new(device: OwnedFd) -> Notifier {
        Notifier(device)
    }

    /// Invalidates attributes and pages of `node`. A negative offset keeps the pages; a length of 0
    /// means all that follow.
    fn invalidate(&self, node: u64, offset: i64, length: u64) -> io::Result<()> {
        let mut body = [0; 24];
        body[..8].copy_from_slice(&node.to_ne_bytes());
        body[8..16].copy_from_slice(&offset.to_ne_bytes());
        body[16..].copy_from_slice(&length.to_ne_bytes());
        self.send(INVAL_INODE, &body)
    }

    fn send(&self, code: i32, body: &[u8]) -> io::Result<()> {
        let mut header = [0; 16];
        let length = u32::try_from(header.len() + body.len()).map_err(io::Error::other)?;
        header[..4].copy_from_slice(&length.to_ne_bytes());
        header[4..8].copy_from_slice(&code.to_ne_bytes());
        rustix::io::writev(&self.0, &[IoSlice::new(&header), IoSlice::new(body)])?;
        Ok(())
    }
}

impl Kernel for Notifier {
    /// Has the kernel look `name` up again before its next use. May block: the kernel takes the
    /// directory's lock, which a create or rename in it holds while it waits for us.
    fn expire_entry(&self, dir: u64, name: &[u8]) -> io::Result<()> {
        let length = u32::try_from(name.len()).map_err(io::Error::other)?;
        let mut body = Vec::with_capacity(16 + name.len() + 1);
        body.extend(dir.to_ne_bytes());
        body.extend(length.to_ne_bytes());
        // Trap: an entry that is *invalidated* is unhashed, and a shell in that directory loses its
        // place. An entry that expires is merely looked up, and the kernel itself drops it if the
        // answer is another file.
        body.extend(EXPIRE_ONLY.to_ne_bytes());
        body.extend(name);
        body.push(0);
        match self.send(INVAL_ENTRY, &body) {
            // The kernel need not have the entry.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            sent => sent,
        }
    }

    /// Has the kernel ask for attributes (and ACLs) again. Does not block.
    fn invalidate_attributes(&self, node: u64) -> io::Result<()> {
        self.invalidate(node, -1, 0)
    }

    /// Does the same, and drops the file's pages. May block: the kernel waits for pages that a read
    /// holds locked until we answer it.
    fn invalidate_pages(&self, node: u64) -> io::Result<()> {
        self.invalidate(node, 0, 0)
    }

    /// Does the same for a range of the file. The kernel writes dirty pages back before it drops
    /// them (`fuse_launder_folio`). For that it needs no lock of a request that waits for this,
    /// except where a file is truncated (`FUSE_NOWRITE`).
    fn write_back(&self, node: u64, offset: u64, length: u64) -> io::Result<()> {
        self.invalidate(node, offset.cast_signed(), length)
    }

    /// Has the kernel look up all entries again. Does not block, but unhashes directories on their
    /// next use.
    fn drop_all_entries(&self) -> io::Result<()> {
        self.send(INC_EPOCH, &[])
    }
}
