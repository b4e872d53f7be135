//! Pages that the kernel may hold dirty: a program has mapped them to write to, and changed them.
//!
//! Trap: the kernel does not mention them before it writes them back: at msync, fsync and close, or
//! when memory is short. Decisions on content before that (holes, blocks, times) are made without
//! them. So a notification that drops the file's pages first makes the kernel write them back. It
//! is sent only for files that are open here to read and to write, as a shared mapping needs. It is
//! sent only if pages may have come since the last time.

use namespace::Stat;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{OnceLock, Weak};

use lease::{Mode, OpenModes};

use crate::nodes::is_sparse;

/// Called once the kernel has written back.
pub(crate) type Written = Box<dyn FnOnce() + Send>;

/// The part of a file that the kernel is to ask for anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drop {
    Attributes,
    /// Pages from an offset on, and so many bytes, 0 for all. The kernel writes dirty ones back
    /// first.
    Pages(u64, u64),
}

/// Makes the kernel drop something, on another thread than the caller's. The caller's thread may
/// have to serve the pages that the kernel writes back.
pub(crate) trait Kernel: Send + Sync {
    fn drop_and_tell(&self, node: u64, what: Drop, then: Written);
}

/// Files that programs here may have mapped to write to.
#[derive(Default)]
pub(crate) struct Mapped {
    /// The number of these files. Where there are none, everything else costs a look at a number.
    nodes: AtomicUsize,
    by_node: Mutex<FxHashMap<u64, Mappable>>,
    pub(super) kernel: OnceLock<Weak<dyn Kernel>>,
}

#[derive(Default)]
struct Mappable {
    handles: u32,
    /// The kernel may have pages of the file.
    pages: bool,
    /// The size that the kernel was last given.
    size: Option<u64>,
}

impl Mapped {
    /// Sets the sender of notifications.
    pub(crate) fn tell_by(&self, kernel: Weak<dyn Kernel>) {
        let _ = self.kernel.set(kernel);
    }

    /// Notes that a handle was opened. Whether a program may map the file by it to write to it.
    pub(super) fn opened(&self, node: u64, open: OpenModes) -> bool {
        if !maps(open) {
            return false;
        }
        let mut by_node = self.by_node.lock();
        let mappable = by_node.entry(node).or_default();
        (mappable.handles, mappable.pages) = (mappable.handles.saturating_add(1), true);
        self.nodes.store(by_node.len(), SeqCst);
        true
    }

    pub(super) fn closed(&self, node: u64, open: OpenModes) {
        if !maps(open) {
            return;
        }
        let mut by_node = self.by_node.lock();
        if let Some(mappable) = by_node.get_mut(&node) {
            mappable.handles = mappable.handles.saturating_sub(1);
            if mappable.handles == 0 {
                by_node.remove(&node);
            }
        }
        self.nodes.store(by_node.len(), SeqCst);
    }

    /// Notes that the kernel comes to have pages of `node`.
    pub(super) fn paged(&self, node: u64) {
        if self.nodes.load(SeqCst) > 0
            && let Some(mappable) = self.by_node.lock().get_mut(&node)
        {
            mappable.pages = true;
        }
    }

    /// Notes that the kernel is given `stat`. Whether that may change unnoticed, by a program that
    /// writes into a hole of the file.
    pub(super) fn told(&self, node: u64, stat: &Stat) -> bool {
        if self.nodes.load(SeqCst) == 0 {
            return false;
        }
        let mut by_node = self.by_node.lock();
        let Some(mappable) = by_node.get_mut(&node) else { return false };
        mappable.size = Some(stat.size);
        is_sparse(stat)
    }

    /// Whether the kernel is to write back dirty pages of `node` before it is given `stat`. Trap:
    /// if a notification comes before our answer, the kernel shows the answer but does not adopt
    /// it. So this holds only if the kernel knows the size already. Otherwise programs would go by
    /// the old size (lseek, a read, a page of a mapping).
    pub(super) fn hides(&self, node: u64, stat: &Stat) -> bool {
        self.nodes.load(SeqCst) > 0
            && is_sparse(stat)
            && self.by_node.lock().get(&node).is_some_and(|it| it.pages && it.size == Some(stat.size))
    }

    /// Whether the kernel may hold dirty pages. The caller has them written back, so none are held
    /// until the kernel has pages again.
    pub(super) fn take(&self, node: u64) -> bool {
        self.nodes.load(SeqCst) > 0
            && self.by_node.lock().get_mut(&node).is_some_and(|it| std::mem::take(&mut it.pages))
    }
}

/// Whether a program can write to a shared mapping by such a handle.
fn maps(open: OpenModes) -> bool {
    open.has_mode(Mode::AccessRead) && open.has_mode(Mode::AccessWrite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_dropped_before_the_kernel_is_told_a_size_that_is_news() {
        let (mapped, both) = (Mapped::default(), OpenModes::posix(true, true));
        let sparse = |size| Stat { size, ..crate::nodes::tests::stat(1, 0o644) };
        assert!(!mapped.told(5, &sparse(9)) && !mapped.hides(5, &sparse(9)), "nobody maps it");
        mapped.opened(5, both);
        assert!(!mapped.hides(5, &sparse(9)));
        assert!(mapped.told(5, &sparse(9)) && mapped.hides(5, &sparse(9)));
        assert!(!mapped.hides(5, &sparse(10)));
        assert!(mapped.take(5) && !mapped.hides(5, &sparse(9)), "it has no pages");
    }

    #[test]
    fn only_what_is_open_to_read_and_write_may_be_dirty_and_once_until_there_are_pages_again() {
        let (mapped, both, read) =
            (Mapped::default(), OpenModes::posix(true, true), OpenModes::posix(true, false));
        assert!(!mapped.opened(5, read) && !mapped.take(5));
        assert!(mapped.opened(5, both) && mapped.opened(5, both) && !mapped.take(6));
        // Pages that the kernel has from before count.
        assert!(mapped.take(5) && !mapped.take(5));
        mapped.paged(5);
        assert!(mapped.take(5));
        mapped.paged(5);
        mapped.closed(5, both);
        mapped.closed(5, read);
        assert!(mapped.take(5), "it is open once more");
        mapped.paged(5);
        mapped.closed(5, both);
        assert!(!mapped.take(5) && mapped.by_node.lock().is_empty());
    }
}
