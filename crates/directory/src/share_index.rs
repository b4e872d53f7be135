//! The shares that files refer to: for hosts, which compare them with the shares that they have.

use crate::extents::ShareRow;
use crate::files::Files;
use crate::io::Store;
use crate::keys::{self, Global};
use ident::FileId;
use namespace::ShareId;
use std::collections::BTreeSet;
use wire::MachineId;

/// Entries of a directory, or extents of a file, that are read at a time.
const STEP: usize = 256;

/// The shares with references among the first `limit` shares after `after` that the state knows, in
/// order; and the last one examined, unless there are no more.
pub fn shares_after(
    store: &dyn Store,
    after: Option<&ShareId>,
    limit: usize,
) -> (Vec<ShareId>, Option<ShareId>) {
    let (mut start, end) = keys::globals(Global::Share);
    if let Some(after) = after {
        start = keys::global(Global::Share, &after.0);
        start.push(0);
    }
    let rows = store.scan(&start, &end, limit);
    let share = |key: &[u8]| keys::share_of_global(key).ok();
    let last = rows.last().filter(|_| rows.len() == limit).and_then(|(key, _)| share(key));
    let referenced = rows.iter().filter(|(_, row)| has_references(row));
    (referenced.filter_map(|(key, _)| share(key)).collect(), last)
}

/// Whether an extent refers to `share`.
pub fn refers_to(store: &dyn Store, share: &ShareId) -> bool {
    store.get(&keys::global(Global::Share, &share.0)).is_some_and(|row| has_references(&row))
}

/// The machine whose update was the first to refer to `share`, if an extent still refers to it.
pub fn publisher(store: &dyn Store, share: &ShareId) -> Option<MachineId> {
    let row = ShareRow::from_bytes(&store.get(&keys::global(Global::Share, &share.0))?)?;
    (row.references > 0).then_some(row.publisher)
}

/// The share that this row is about, if it is such a row and an extent refers to the share.
pub fn share_of_row(key: &[u8], row: &[u8]) -> Option<ShareId> {
    let is_share = key.first() == Some(&(Global::Share as u8));
    (is_share && has_references(row)).then(|| keys::share_of_global(key).ok()).flatten()
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

/// Whether a share's row has references. A share whose row cannot be read is not released.
fn has_references(row: &[u8]) -> bool {
    ShareRow::from_bytes(row).is_none_or(|row| row.references > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;
    use ident::FileId;

    #[test]
    fn shares_are_gone_through_in_steps_and_those_that_nothing_refers_to_are_left_out() {
        let (mut rows, share) = (MemoryStore::default(), |number| ShareId([number; 16]));
        for number in 0..10 {
            let publisher = MachineId(7);
            let row = ShareRow { file: FileId::root(), references: u64::from(number % 2), publisher };
            rows.put(&keys::global(Global::Share, &share(number).0), row.to_bytes());
        }
        rows.put(&keys::global(Global::Unsettled, &share(3).0), Vec::new());
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
        let by_row: Vec<ShareId> = rows.rows.iter().filter_map(|(key, row)| share_of_row(key, row)).collect();
        assert_eq!(by_row, found);
        assert!(refers_to(&rows, &share(3)) && !refers_to(&rows, &share(4)) && !refers_to(&rows, &share(11)));
        let known = (0..12).filter(|number| publisher(&rows, &share(*number)) == Some(MachineId(7)));
        assert!(known.eq([1, 3, 5, 7, 9]));
    }
}
