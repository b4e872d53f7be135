//! The shares that files refer to: for hosts, which compare them with the shares that they have.

use crate::Store;
use crate::rows::extents::ShareRow;
use crate::rows::files::Files;
use crate::rows::keys::Table;
use ident::FileId;
use namespace::ShareId;
use std::collections::BTreeSet;
use wire::MachineId;

/// Entries of a directory, or extents of a file, that are read at a time.
const STEP: usize = 256;

/// The first `limit` shares after `after` that extents refer to, in order; and the last of them,
/// unless there are no more.
pub fn shares_after(
    store: &dyn Store,
    after: Option<&ShareId>,
    limit: usize,
) -> (Vec<ShareId>, Option<ShareId>) {
    let (mut start, end) = Table::Share.range();
    if let Some(after) = after {
        start = Table::Share.key(&after.0);
        start.push(0);
    }
    let rows = store.scan(&start, &end, limit);
    let share = |key: &[u8]| Table::Share.share(key).ok();
    let last = rows.last().filter(|_| rows.len() == limit).and_then(|(key, _)| share(key));
    (rows.iter().filter_map(|(key, _)| share(key)).collect(), last)
}

/// Whether an extent refers to `share`.
pub fn refers_to(store: &dyn Store, share: &ShareId) -> bool {
    store.get(&Table::Share.key(&share.0)).is_some()
}

/// The machine whose update was the first to refer to `share`, if an extent still refers to it.
pub fn publisher(store: &dyn Store, share: &ShareId) -> Option<MachineId> {
    Some(ShareRow::from_bytes(&store.get(&Table::Share.key(&share.0))?)?.publisher)
}

/// The share that the row with this key is about, if it is such a row: an extent refers to the
/// share.
pub fn share_of_row(key: &[u8]) -> Option<ShareId> {
    Table::Share.share(key).ok()
}

/// The shares that `file` refers to, or the files within that directory.
pub(crate) fn shares_below(files: &Files<'_>, file: FileId) -> BTreeSet<ShareId> {
    let (mut shares, mut left) = (BTreeSet::new(), vec![file]);
    while let Some(file) = left.pop() {
        let mut after = 0;
        loop {
            let page = files.page(&file, after, STEP);
            after = page.last().map_or(after, |(_, entry)| entry.position);
            let is_last = page.len() < STEP;
            left.extend(page.into_iter().map(|(_, entry)| entry.file));
            if is_last {
                break;
            }
        }
        let mut from = 0;
        loop {
            let extents = files.outlines(&file, from, u64::MAX, STEP);
            shares.extend(extents.iter().filter_map(|extent| extent.share));
            from = extents.last().map_or(from, |last| last.end);
            if extents.len() < STEP {
                break;
            }
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;
    use ident::FileId;

    #[test]
    fn shares_are_gone_through_in_steps_and_those_that_nothing_refers_to_are_left_out() {
        let (mut rows, share) = (MemoryStore::default(), |number| ShareId([number; 16]));
        for number in [1, 3, 5, 7, 9] {
            let row = ShareRow { file: FileId::root(), references: 1, publisher: MachineId(7) };
            rows.put(&Table::Share.key(&share(number).0), row.to_bytes());
        }
        for number in [3, 4] {
            rows.put(&Table::Unsettled.key(&share(number).0), Vec::new());
        }
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let (some, last) = shares_after(&rows, after.as_ref(), 3);
            found.extend(some);
            after = last;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, [1, 3, 5, 7, 9].map(share));
        let by_row: Vec<ShareId> = rows.rows.keys().filter_map(|key| share_of_row(key)).collect();
        assert_eq!(by_row, found);
        assert!(refers_to(&rows, &share(3)) && !refers_to(&rows, &share(4)) && !refers_to(&rows, &share(11)));
        let known = (0..12).filter(|number| publisher(&rows, &share(*number)) == Some(MachineId(7)));
        assert!(known.eq([1, 3, 5, 7, 9]));
    }
}
