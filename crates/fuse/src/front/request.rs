//! The parts of the kernel's requests.

use namespace::{AttributeChange, FileSpec, LockKind, LockRange, LockSpace, XattrMode};

use super::handle::Handle;

/// The changes that `setattr` asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SetattrChange {
    pub(crate) attributes: AttributeChange,
    pub(crate) size: Option<u64>,
    /// The request came by an open handle (ftruncate).
    pub(crate) through_handle: bool,
}

/// A file to be made and opened.
#[derive(Debug)]
pub(crate) struct CreateRequest<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) spec: FileSpec,
    /// The flags of the open.
    pub(crate) flags: i32,
}

/// An extended attribute to be set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct XattrRequest<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
    pub(crate) mode: XattrMode,
}

/// The part of an open file that is to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRequest {
    pub(crate) handle: Handle,
    pub(crate) offset: u64,
    pub(crate) length: u32,
    /// The flags of the open file.
    pub(crate) flags: i32,
}

/// A lock request of the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockRequest {
    pub(crate) handle: Handle,
    pub(crate) owner: u64,
    /// The process, which `F_GETLK` reports.
    pub(crate) pid: u32,
    pub(crate) space: LockSpace,
    pub(crate) range: LockRange,
    /// Nothing means to unlock.
    pub(crate) kind: Option<LockKind>,
    pub(crate) wait: bool,
}

/// The way of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// Through the kernel's pages, which keep the data as well.
    Paged,
    /// With O_DIRECT.
    Direct,
    /// At the file's end, wherever that is.
    Append,
    /// Data that a program has changed in a page.
    WriteBack,
}
