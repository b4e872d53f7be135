//! The state of directories that are gone while a program here is still in them.

use lease::Label;
use namespace::{AttributeChange, Error, SetTime, Stat, Timestamp, XattrMode};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Removed directories that were changed.
#[derive(Default)]
pub(crate) struct Removed {
    /// The number of these directories.
    pub(super) nodes: AtomicUsize,
    by_node: Mutex<FxHashMap<u64, LeftEntry>>,
}

/// The state of one such directory.
pub(super) struct LeftEntry {
    pub(super) stat: Stat,
    pub(super) xattrs: BTreeMap<Label, Vec<u8>>,
}

impl Removed {
    /// Forgets `node` if it `is_gone`: the kernel has forgotten all of it.
    pub(super) fn forget(&self, node: u64, is_gone: impl FnOnce() -> bool) {
        if self.nodes.load(SeqCst) > 0 && is_gone() {
            let mut by_node = self.by_node.lock();
            by_node.remove(&node);
            self.nodes.store(by_node.len(), SeqCst);
        }
    }

    /// Calls `does` on the state of `node`, which begins as `stat` if nothing was done to it
    /// before.
    pub(super) fn with<T>(&self, node: u64, stat: Stat, does: impl FnOnce(&mut LeftEntry) -> T) -> T {
        let mut by_node = self.by_node.lock();
        let done = does(by_node.entry(node).or_insert_with(|| LeftEntry { stat, xattrs: BTreeMap::new() }));
        self.nodes.store(by_node.len(), SeqCst);
        done
    }
}

impl LeftEntry {
    /// Sets attributes. The kernel has checked that the asker may (`default_permissions`).
    pub(super) fn set(&mut self, change: &AttributeChange, now: Timestamp) {
        let at = |time: SetTime| match time {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        let Stat { attributes, mtime, .. } = &mut self.stat;
        attributes.mode = change.mode.unwrap_or(attributes.mode);
        attributes.uid = change.uid.unwrap_or(attributes.uid);
        attributes.gid = change.gid.unwrap_or(attributes.gid);
        attributes.atime = change.atime.map_or(attributes.atime, at);
        *mtime = change.mtime.map_or(*mtime, at);
        attributes.ctime = now;
    }

    pub(super) fn set_xattr(
        &mut self,
        name: Label,
        value: &[u8],
        mode: XattrMode,
        now: Timestamp,
    ) -> Result<(), Error> {
        match (mode, self.xattrs.contains_key(&name)) {
            (XattrMode::Create, true) => return Err(Error::Exists),
            (XattrMode::Replace, false) => return Err(Error::NoAttribute),
            _ => self.xattrs.insert(name, value.to_vec()),
        };
        self.stat.attributes.ctime = now;
        Ok(())
    }
}
