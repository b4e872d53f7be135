//! Directories that are gone while a program here is still in them. On a local disk such a
//! directory would go on until the program leaves it. In the tree that all machines share it is
//! gone. So changes to it stay at this front door, where alone they can be seen, until the kernel
//! forgets it.

use lease::Label;
use namespace::{AttributeChange, Error, SetTime, Stat, Timestamp, XattrMode};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Front, Outcome, Shown};
use crate::errno::Errno;

/// Removed directories that were changed.
#[derive(Default)]
pub(crate) struct Removed {
    /// The number of these directories.
    nodes: AtomicUsize,
    by_node: Mutex<FxHashMap<u64, LeftEntry>>,
}

/// The state of one such directory.
struct LeftEntry {
    stat: Stat,
    xattrs: BTreeMap<Label, Vec<u8>>,
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
    fn with<T>(&self, node: u64, stat: Stat, does: impl FnOnce(&mut LeftEntry) -> T) -> T {
        let mut by_node = self.by_node.lock();
        let done = does(by_node.entry(node).or_insert_with(|| LeftEntry { stat, xattrs: BTreeMap::new() }));
        self.nodes.store(by_node.len(), SeqCst);
        done
    }
}

impl LeftEntry {
    /// Sets attributes. The kernel has checked that the asker may (`default_permissions`).
    fn set(&mut self, change: &AttributeChange, now: Timestamp) {
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

    fn set_xattr(&mut self, name: Label, value: &[u8], mode: XattrMode, now: Timestamp) -> Result<(), Error> {
        match (mode, self.xattrs.contains_key(&name)) {
            (XattrMode::Create, true) => return Err(Error::Exists),
            (XattrMode::Replace, false) => return Err(Error::NoAttribute),
            _ => self.xattrs.insert(name, value.to_vec()),
        };
        self.stat.attributes.ctime = now;
        Ok(())
    }
}

impl Front {
    /// The stat of a directory that is gone.
    pub(super) fn removed_stat(&self, node: u64) -> Outcome<Shown> {
        let stat = self.nodes.removed_directory(node).ok_or(Errno::STALE)?;
        let shown = |left: &mut LeftEntry| left.stat;
        let is_changed = self.removed.nodes.load(SeqCst) > 0;
        Ok(self.show(node, if is_changed { self.removed.with(node, stat, shown) } else { stat }).passing())
    }

    pub(super) fn set_removed(&self, node: u64, change: &AttributeChange) -> Outcome<Shown> {
        self.with_removed(node, |left| {
            left.set(change, now());
            left.stat
        })
        .map(|stat| self.show(node, stat).passing())
    }

    pub(super) fn set_removed_xattr(
        &self,
        node: u64,
        name: Label,
        value: &[u8],
        mode: XattrMode,
    ) -> Outcome<()> {
        self.with_removed(node, |left| left.set_xattr(name, value, mode, now()))?.map_err(Errno::of_xattr)
    }

    pub(super) fn remove_removed_xattr(&self, node: u64, name: &Label) -> Outcome<()> {
        let removed = self.with_removed(node, |left| left.xattrs.remove(name))?;
        removed.map(drop).ok_or(Errno::of_xattr(Error::NoAttribute))
    }

    pub(super) fn removed_xattr(&self, node: u64, name: &Label) -> Outcome<Vec<u8>> {
        let found = self.with_removed(node, |left| left.xattrs.get(name).cloned())?;
        found.ok_or(Errno::of_xattr(Error::NoAttribute))
    }

    pub(super) fn removed_xattrs(&self, node: u64) -> Outcome<Vec<Label>> {
        self.with_removed(node, |left| left.xattrs.keys().cloned().collect())
    }

    fn with_removed<T>(&self, node: u64, does: impl FnOnce(&mut LeftEntry) -> T) -> Outcome<T> {
        let stat = self.nodes.removed_directory(node).ok_or(Errno::STALE)?;
        Ok(self.removed.with(node, stat, does))
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { secs: since.as_secs().cast_signed(), nanos: since.subsec_nanos() }
}
