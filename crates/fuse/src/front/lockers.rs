//! The owners of locks, and the handles by which they have locked.

use namespace::LockSpace;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use super::handle::Handle;

/// The owners that have locked something, by node. Where there are none, a close costs one look at
/// a number.
#[derive(Default)]
pub(crate) struct Lockers {
    nodes: AtomicUsize,
    by_node: Mutex<FxHashMap<u64, Vec<Locker>>>,
}

/// An owner, and one of the handles by which it has locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Locker {
    pub(super) owner: u64,
    pub(super) space: LockSpace,
    pub(super) handle: Handle,
}

impl Lockers {
    pub(super) fn remember(&self, node: u64, locker: Locker) {
        let mut by_node = self.by_node.lock();
        let lockers = by_node.entry(node).or_default();
        if !lockers.contains(&locker) {
            lockers.push(locker);
        }
        self.nodes.store(by_node.len(), SeqCst);
    }

    /// Forgets the lockers for which `leave` is true, and returns them.
    pub(super) fn forget(&self, node: u64, leave: impl Fn(&Locker) -> bool) -> Vec<Locker> {
        if self.nodes.load(SeqCst) == 0 {
            return Vec::new();
        }
        let mut by_node = self.by_node.lock();
        let Some(lockers) = by_node.get_mut(&node) else { return Vec::new() };
        let (left, stay): (Vec<Locker>, Vec<Locker>) = lockers.iter().partition(|locker| leave(locker));
        *lockers = stay;
        if lockers.is_empty() {
            by_node.remove(&node);
        }
        self.nodes.store(by_node.len(), SeqCst);
        left
    }
}
