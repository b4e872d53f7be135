//! What the kernel may hold dirty: pages that a program has mapped to write to, and changed.
//!
//! Trap: the kernel says nothing of them before it writes them back: at msync, fsync and close, or
//! when memory is short. What is decided on content before that (holes, blocks, times) is decided
//! without them. So it is made to write them back first, by a notification that drops the file's
//! pages. Only of files that are open here to read and to write, which a shared mapping takes, and
//! only if pages may have come since the last time.

use namespace::Stat;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};

use lease::{Mode, Open};

use super::Front;

/// What is done once the kernel has written back.
pub(crate) type Written = Box<dyn FnOnce() + Send>;

/// What of a file the kernel is to ask for anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drop {
    Attributes,
    /// What is dirty of these pages it writes back first: from an offset on, so many bytes, 0 for
    /// all.
    Pages(u64, u64),
}

/// Who makes the kernel do so. Not on the thread that calls, which may serve what the kernel writes
/// back.
pub(crate) trait Kernel: Send + Sync {
    fn drop_and_tell(&self, node: u64, what: Drop, then: Written);
}

/// Files that programs here may have mapped to write to.
#[derive(Default)]
pub(crate) struct Mapped {
    /// How many those are: where there is none, all else costs a look at a number.
    nodes: AtomicUsize,
    by_node: Mutex<FxHashMap<u64, Mappable>>,
    kernel: OnceLock<Weak<dyn Kernel>>,
}

#[derive(Default)]
struct Mappable {
    handles: u32,
    /// The kernel may have pages of it.
    pages: bool,
    /// The size that the kernel was told last.
    size: Option<u64>,
}

impl Mapped {
    /// By whom the kernel is told.
    pub(crate) fn tell_by(&self, kernel: Weak<dyn Kernel>) {
        let _ = self.kernel.set(kernel);
    }

    /// A handle was opened; whether a program may map the file to write to it by that.
    pub(super) fn opened(&self, node: u64, open: Open) -> bool {
        if !maps(open) {
            return false;
        }
        let mut by_node = self.by_node.lock();
        let mappable = by_node.entry(node).or_default();
        (mappable.handles, mappable.pages) = (mappable.handles.saturating_add(1), true);
        self.nodes.store(by_node.len(), SeqCst);
        true
    }

    pub(super) fn closed(&self, node: u64, open: Open) {
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

    /// The kernel comes to have pages of `node`.
    pub(super) fn paged(&self, node: u64) {
        if self.nodes.load(SeqCst) > 0
            && let Some(mappable) = self.by_node.lock().get_mut(&node)
        {
            mappable.pages = true;
        }
    }

    /// The kernel is told `stat`. Whether that may change without a word, by what a program writes
    /// into a hole of the file.
    pub(super) fn told(&self, node: u64, stat: &Stat) -> bool {
        if self.nodes.load(SeqCst) == 0 {
            return false;
        }
        let mut by_node = self.by_node.lock();
        let Some(mappable) = by_node.get_mut(&node) else { return false };
        mappable.size = Some(stat.size);
        is_sparse(stat)
    }

    /// Whether the kernel is to write back what it may hold dirty of `node` before it is told
    /// `stat`. Trap: a notification that comes before our answer has the kernel show that, but not
    /// take it for its own. So only if the size is none that is news, or programs would go by the
    /// old one (lseek, a read, a page of a mapping).
    pub(super) fn hides(&self, node: u64, stat: &Stat) -> bool {
        self.nodes.load(SeqCst) > 0
            && is_sparse(stat)
            && self.by_node.lock().get(&node).is_some_and(|it| it.pages && it.size == Some(stat.size))
    }

    /// Whether the kernel may hold something dirty. From here on it does not, until it has pages
    /// again.
    fn take(&self, node: u64) -> bool {
        self.nodes.load(SeqCst) > 0
            && self.by_node.lock().get_mut(&node).is_some_and(|it| std::mem::take(&mut it.pages))
    }
}

impl Front {
    /// Goes on once the kernel has written back what it may hold dirty of `node`.
    pub(super) fn after_writing_back(
        self: &Arc<Self>,
        node: u64,
        then: impl FnOnce(&Arc<Front>) + Send + 'static,
    ) {
        if self.mapped.take(node) { self.after_dropping(node, Drop::Pages(0, 0), then) } else { then(self) }
    }

    /// Goes on once the kernel has dropped this.
    pub(super) fn after_dropping(
        self: &Arc<Self>,
        node: u64,
        what: Drop,
        then: impl FnOnce(&Arc<Front>) + Send + 'static,
    ) {
        let Some(kernel) = self.mapped.kernel.get().and_then(Weak::upgrade) else { return then(self) };
        let front = Arc::clone(self);
        kernel.drop_and_tell(node, what, Box::new(move || then(&front)));
    }
}

/// Whether a shared mapping can be written to by such a handle.
fn maps(open: Open) -> bool {
    open.has_mode(Mode::AccessRead) && open.has_mode(Mode::AccessWrite)
}

/// Whether there is a hole that could be written to: without one neither blocks nor holes change by
/// a mapping.
pub(crate) fn is_sparse(stat: &Stat) -> bool {
    stat.occupied < stat.size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_dropped_before_the_kernel_is_told_a_size_that_is_news() {
        let (mapped, both) = (Mapped::default(), Open::posix(true, true));
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
        let (mapped, both, read) = (Mapped::default(), Open::posix(true, true), Open::posix(true, false));
        assert!(!mapped.opened(5, read) && !mapped.take(5));
        assert!(mapped.opened(5, both) && mapped.opened(5, both) && !mapped.take(6));
        // Pages that it has from before count.
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
