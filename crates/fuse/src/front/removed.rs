//! Directories that are gone while a program here is still in them. On a local disk such a
//! directory would go on until the program leaves it. In the tree that all machines share it is
//! gone. So changes to it stay at this front door, where alone they can be seen, until the kernel
//! forgets it.

use lease::Label;
use namespace::{AttributeChange, Error, Timestamp, XattrMode};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{SystemTime, UNIX_EPOCH};

use super::left_entries::LeftEntry;
use super::{Front, Outcome, Shown};
use crate::errno::Errno;

impl Front {
    /// The stat of a directory that is gone.
    pub(super) fn removed_stat(&self, node: u64) -> Outcome<Shown> {
        let stat = self.nodes.removed_directory(node).ok_or(Errno::STALE)?;
        let shown = |left: &mut LeftEntry| left.stat;
        let is_changed = self.removed.nodes.load(SeqCst) > 0;
        Ok(self.show(node, if is_changed { self.removed.with(node, stat, shown) } else { stat }).uncached())
    }

    pub(super) fn set_removed(&self, node: u64, change: &AttributeChange) -> Outcome<Shown> {
        self.with_removed(node, |left| {
            left.set(change, now());
            left.stat
        })
        .map(|stat| self.show(node, stat).uncached())
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
