//! The files that the kernel has forgotten. A file handle (`name_to_handle_at`: nfsd, overlays,
//! backups) holds a node's number and outlives the node. With such a handle the kernel looks up `.`
//! of the node.

use ident::FileId;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// The number of files remembered: the latest, in some 16 MiB.
const FILES_MAX: usize = 1 << 18;

/// The files of nodes that the kernel does not have any more. Inode numbers are never used again,
/// so an entry too many does no harm.
#[derive(Debug, Default)]
pub(crate) struct Forgotten(Mutex<ForgottenFiles>);

#[derive(Debug, Default)]
struct ForgottenFiles {
    by_node: FxHashMap<u64, FileId>,
    order: VecDeque<u64>,
}

impl Forgotten {
    pub(crate) fn add(&self, node: u64, file: FileId) {
        let mut files = self.0.lock();
        if files.by_node.insert(node, file).is_none() {
            files.order.push_back(node);
        }
        if files.order.len() > FILES_MAX
            && let Some(oldest) = files.order.pop_front()
        {
            files.by_node.remove(&oldest);
        }
    }

    pub(crate) fn file(&self, node: u64) -> Option<FileId> {
        self.0.lock().by_node.get(&node).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered() {
        let (forgotten, file) = (Forgotten::default(), |n| FileId::root().child(n));
        for n in 1..=FILES_MAX as u64 + 2 {
            forgotten.add(n, file(n));
            forgotten.add(n, file(n));
        }
        assert_eq!((forgotten.file(2), forgotten.file(3)), (None, Some(file(3))));
        assert_eq!(forgotten.0.lock().order.len(), FILES_MAX);
    }
}
