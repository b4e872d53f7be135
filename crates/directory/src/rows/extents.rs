//! The effect of a publication on a file's extents, and on its shares.
//!
//! A share belongs to one file. A row of its own names that file, with the number of extents that
//! refer to the share. Both facts are in one place. So a client that names another file's share is
//! found out before any change, and the last reference is seen without a search.

use crate::Corrupt;
use crate::rows::files::{Files, Outline};
use crate::rows::keys::Table;
use crate::rows::record::exact;
use ident::FileId;
use namespace::{ContentChange, ContentHead, Extent, ShareId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use wire::{MachineId, ShareWork};

/// Extents read at a time.
const SCAN: usize = 64;

/// The file and the publisher of a share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShareRow {
    /// The file.
    pub file: FileId,
    /// Its extents that refer to the share, at least one.
    pub references: u64,
    /// The machine whose update was the first to refer to the share: only this machine has uploaded
    /// it.
    pub publisher: MachineId,
}

impl ShareRow {
    /// The value of the row.
    pub fn to_bytes(&self) -> Vec<u8> {
        wire::encode(self)
    }

    /// Reads the value of the row.
    pub fn from_bytes(bytes: &[u8]) -> Option<ShareRow> {
        exact(bytes)
    }
}

/// The changes to the references of shares, to be settled at the end: an overwrite that splits an
/// extent drops and takes up references on the way.
#[derive(Debug, Default)]
pub(crate) struct References(BTreeMap<ShareId, (FileId, i64)>);

impl References {
    /// An extent of `file` begins (1) or ceases (-1) to refer to this share, if it refers to one.
    pub fn count(&mut self, file: &FileId, share: Option<ShareId>, change: i64) {
        if let Some(share) = share {
            self.0.entry(share).or_insert_with(|| (file.clone(), 0)).1 += change;
        }
    }
}

/// The shares that a change of content refers to.
pub(crate) fn shares_in(change: &ContentChange) -> impl Iterator<Item = ShareId> {
    let put: &[Extent] = match change {
        ContentChange::Extents { put, .. } => put,
        ContentChange::Inline { .. } | ContentChange::None => &[],
    };
    put.iter().filter_map(|extent| extent.piece.place.share())
}

impl Files<'_> {
    /// Whether `file` may refer to `share`: the share is the file's own, or new. No extent refers
    /// to a fragment: a client that could refer to another's fragment could have it released.
    pub fn may_refer(&self, file: &FileId, share: &ShareId) -> bool {
        if share.number().is_some() {
            return false;
        }
        match self.share(share) {
            Some(row) => row.file == *file,
            // The leases of a share that lost its last reference may not be released yet.
            None => self.row(Table::Unsettled, &share.0).is_none(),
        }
    }

    /// The row of `share`.
    pub fn share(&self, share: &ShareId) -> Option<ShareRow> {
        let row = self.row(Table::Share, &share.0)?;
        self.parse_key(ShareRow::from_bytes(&row).ok_or_else(|| Corrupt::at(&share.0, "share")))
    }

    /// Applies this change to the content of `file`. The extents then give the space that it
    /// occupies.
    pub fn publish(
        &mut self,
        file: &FileId,
        head: ContentHead,
        change: &ContentChange,
        references: &mut References,
    ) {
        let Some(record) = self.record_mut(file) else { return };
        let occupied = record.content.occupied;
        record.content = ContentHead { occupied, ..head };
        match change {
            ContentChange::None => {}
            ContentChange::Inline { sealed, .. } => {
                self.cut(file, 0, u64::MAX, references);
                self.set_inline(file, sealed);
                if let Some(record) = self.record_mut(file) {
                    record.content.occupied = head.size;
                }
            }
            ContentChange::Extents { truncate_to, punch, put, .. } => {
                if self.record(file).is_some_and(|record| record.inline_bytes > 0) {
                    self.set_inline(file, &[]);
                    if let Some(record) = self.record_mut(file) {
                        record.content.occupied = 0;
                    }
                }
                if let Some(size) = truncate_to {
                    self.cut(file, *size, u64::MAX, references);
                }
                for (offset, length) in punch {
                    self.cut(file, *offset, offset.saturating_add(*length), references);
                }
                for extent in put {
                    self.cut(
                        file,
                        extent.offset,
                        extent.offset.saturating_add(extent.length.into()),
                        references,
                    );
                    self.add_extent(file, extent, references);
                }
            }
        }
    }

    /// Makes a hole of `from..to`; the parts of extents outside the hole stay.
    fn cut(&mut self, file: &FileId, from: u64, to: u64, references: &mut References) {
        loop {
            let outlines = self.outlines(file, from, to, SCAN);
            for outline in &outlines {
                let stays = outline.offset < from || outline.end > to;
                let extent = if stays { self.extent(file, outline.end) } else { None };
                self.drop_extent(file, outline, references);
                let Some(extent) = extent else { continue };
                if extent.offset < from {
                    let length = (from - extent.offset) as u32;
                    self.add_extent(file, &Extent { length, ..extent.clone() }, references);
                }
                if outline.end > to {
                    let cut = (to - extent.offset) as u32;
                    let (length, skip) = (extent.length - cut, extent.skip + cut);
                    self.add_extent(
                        file,
                        &Extent { offset: to, length, skip, piece: extent.piece },
                        references,
                    );
                }
            }
            if outlines.len() < SCAN {
                return;
            }
        }
    }

    fn add_extent(&mut self, file: &FileId, extent: &Extent, references: &mut References) {
        let Some(record) = self.record_mut(file) else { return };
        record.extents += 1;
        record.content.occupied += u64::from(extent.length);
        self.set_extent(file, extent.offset + u64::from(extent.length), Some(extent));
        references.count(file, extent.piece.place.share(), 1);
    }

    fn drop_extent(&mut self, file: &FileId, outline: &Outline, references: &mut References) {
        let Some(record) = self.record_mut(file) else { return };
        record.extents = record.extents.saturating_sub(1);
        record.content.occupied = record.content.occupied.saturating_sub(outline.end - outline.offset);
        self.set_extent(file, outline.end, None);
        references.count(file, outline.share, -1);
    }

    /// Records how an update of `machine` changed the references to shares, and the work due on
    /// their leases. The work stays recorded until the share server has confirmed it.
    pub fn settle(&mut self, references: References, machine: Option<MachineId>, work: &mut Vec<ShareWork>) {
        for (share, (file, change)) in references.0 {
            let known = self.share(&share);
            let new = known.is_none();
            // Only updates of machines refer to shares that were not referred to before.
            let row = known.or_else(|| machine.map(|publisher| ShareRow { file, references: 0, publisher }));
            let row = row.ok_or_else(|| Corrupt::at(&Table::Share.key(&share.0), "share"));
            let Some(mut row) = self.parse_key(row) else { continue };
            row.references = row.references.saturating_add_signed(change);
            let is_referenced = row.references > 0;
            self.set_row(Table::Share, &share.0, is_referenced.then(|| row.to_bytes()));
            if new || !is_referenced {
                self.set_row(Table::Unsettled, &share.0, Some(Vec::new()));
                work.push(if is_referenced { ShareWork::Adopt(share) } else { ShareWork::Drop(share) });
            }
        }
    }

    /// Takes in that the share server has done this work. Work that later work on the share has
    /// overtaken stays unsettled.
    pub fn settled(&mut self, work: ShareWork) {
        let (share, adopted) = match work {
            ShareWork::Adopt(share) => (share, true),
            ShareWork::Drop(share) => (share, false),
        };
        if self.share(&share).is_some() == adopted {
            self.set_row(Table::Unsettled, &share.0, None);
        }
    }

    /// All work that is not confirmed.
    pub fn unsettled(&self) -> Vec<ShareWork> {
        let shares = self.table(Table::Unsettled, None, usize::MAX).into_iter();
        let shares = shares.filter_map(|(key, _)| self.parse_key(Table::Unsettled.share(&key)));
        shares
            .map(|share| match self.share(&share) {
                Some(_) => ShareWork::Adopt(share),
                None => ShareWork::Drop(share),
            })
            .collect()
    }
}
