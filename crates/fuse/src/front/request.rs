//! The parts of the kernel's requests.

use namespace::{AttributeChange, LockKind, LockRange, LockSpace};

use super::handle::Handle;

/// The changes that `setattr` asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    pub(crate) attributes: AttributeChange,
    pub(crate) size: Option<u64>,
    /// The request came by an open handle (ftruncate).
    pub(crate) through_handle: bool,
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
    Back,
}
