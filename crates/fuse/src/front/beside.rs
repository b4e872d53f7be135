//! Direct writes beside the kernel's pages.
//!
//! Trap: the kernel drops the pages under a direct write before it asks us. Afterwards it drops
//! them only if it has waited for our answer (`fuse_aio_complete`). Pages that were read in between
//! have the content before the write. So we have them dropped before we answer. The kernel does not
//! say which writes are asynchronous, nor which pages it has. If no page came during 16 direct
//! writes, all pages are dropped once. From then on none need be dropped until one comes.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::mapped::Drop;

/// Direct writes without a new page after which all pages are dropped.
const WRITES: u8 = 16;

/// Files that were written to directly.
#[derive(Default)]
pub(crate) struct Beside {
    /// The number of these files.
    nodes: AtomicUsize,
    /// Direct writes since the last page came, up to `WRITES`: then the kernel has no pages.
    by_node: Mutex<FxHashMap<u64, u8>>,
}

impl Beside {
    /// Notes that the kernel comes to have pages of `node`.
    pub(super) fn paged(&self, node: u64) {
        if self.nodes.load(SeqCst) > 0
            && let Some(writes) = self.by_node.lock().get_mut(&node)
        {
            *writes = 0;
        }
    }

    /// Notes that `length` bytes were written directly. Returns the pages that the kernel is to
    /// drop.
    pub(super) fn written(&self, node: u64, offset: u64, length: u64) -> Option<Drop> {
        let mut by_node = self.by_node.lock();
        let writes = by_node.entry(node).or_default();
        let due = match *writes {
            WRITES => None,
            most if most == WRITES - 1 => Some(Drop::Pages(0, 0)),
            _ => Some(Drop::Pages(offset, length)),
        };
        *writes = (*writes + 1).min(WRITES);
        self.nodes.store(by_node.len(), SeqCst);
        due
    }

    /// Forgets `node` if it `is_gone`: the kernel has forgotten all of it.
    pub(super) fn forget(&self, node: u64, is_gone: impl FnOnce() -> bool) {
        if self.nodes.load(SeqCst) > 0 && is_gone() {
            let mut by_node = self.by_node.lock();
            by_node.remove(&node);
            self.nodes.store(by_node.len(), SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_dropped_after_direct_writes_while_some_may_be_there() {
        let beside = Beside::default();
        beside.paged(5);
        for round in 0..2 {
            for n in 1..u64::from(WRITES) {
                assert_eq!(beside.written(5, 4096 * n, 10), Some(Drop::Pages(4096 * n, 10)), "{round}");
            }
            assert_eq!(beside.written(5, 4096, 10), Some(Drop::Pages(0, 0)));
            assert_eq!((beside.written(5, 4096, 10), beside.written(5, 0, 10)), (None, None));
            beside.paged(5);
        }
        beside.forget(5, || false);
        assert!(beside.by_node.lock().contains_key(&5));
        beside.forget(5, || true);
        assert!(beside.by_node.lock().is_empty());
    }
}
