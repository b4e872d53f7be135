//! The rows that one turn of the server reads and changes.

use crate::paths::PathLeases;
use crate::regions::Regions;
use crate::rows::decoded::DecodedRecords;
use crate::rows::keys;
use crate::rows::record::{Record, entry_from_bytes, entry_to_bytes, exact};
use crate::{Corrupt, Store};
use ident::FileId;
use keys::{Table, Tag};
use lease::{Holdings, Label, SessionId};
use namespace::{Entry, Extent, LockTable, ShareId};
use rustc_hash::FxHashSet;
use serde::Deserialize;
use std::cell::RefCell;
use std::sync::Arc;
use twox_hash::XxHash3_64;

/// Rows that are looked at to find one more file. Most files have one row, and directories two for
/// each entry.
const ROWS_OF_FILE: usize = 8;

/// The state of all files, as one turn sees it: the store, and the records already decoded.
///
/// A row that cannot be read counts as absent until the end of the turn. Then [`Files::finish`]
/// reports it and the host stops, so no result that rests on it leaves the server.
pub(crate) struct Files<'a> {
    store: &'a mut dyn Store,
    records: RefCell<DecodedRecords>,
    corrupt: RefCell<Option<Corrupt>>,
    /// The label's row read last: a change usually follows the decision on the same row.
    last_child: RefCell<Option<(keys::RowKey, Option<Entry>)>>,
    /// Sessions that are not over. The holdings of others count for nothing, and go when their row
    /// is next written. So ending a session costs the same however much it held.
    pub live: FxHashSet<SessionId>,
    /// The regions of this server. No other file has a record here, whatever rows are left of it.
    pub regions: Regions,
    /// The path leases of this server, and those that it has issued.
    pub paths: PathLeases,
    /// Running hash of every change to the store, for replicas to compare.
    pub digest: u64,
    /// Dead files that have rows left: mostly none, and then no lookup is needed.
    pub dying: u64,
}

/// The knowledge of a turn beside the rows, with which it changes.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    /// See [`Files::live`].
    pub live: FxHashSet<SessionId>,
    /// See [`Files::regions`].
    pub regions: Regions,
    /// See [`Files::paths`].
    pub paths: PathLeases,
    /// See [`Files::digest`].
    pub digest: u64,
    /// See [`Files::dying`].
    pub dying: u64,
    /// The records that earlier turns left.
    pub decoded: DecodedRecords,
}

/// An extent without its content: its place, and the share that holds its bytes.
pub(crate) struct Outline {
    pub offset: u64,
    pub end: u64,
    pub share: Option<ShareId>,
}

impl<'a> Files<'a> {
    pub fn new(store: &'a mut dyn Store, surroundings: Surroundings) -> Files<'a> {
        let Surroundings { live, regions, paths, digest, dying, decoded } = surroundings;
        let (records, corrupt, last_child) = (RefCell::new(decoded), Default::default(), Default::default());
        Files { store, records, corrupt, last_child, live, regions, paths, digest, dying }
    }

    /// Writes back the changes, in the order of identifiers (replicas must agree on it). Gives back
    /// the surroundings, as they are now.
    pub fn finish(mut self) -> Result<Surroundings, Corrupt> {
        let mut decoded = std::mem::take(self.records.get_mut());
        for (file, record) in decoded.end_turn(&self.regions) {
            if let Some(record) = &record {
                debug_assert_eq!(record.holdings.check(), Ok(()), "leases on {file}");
            }
            let row = record.map(|record| record.to_bytes(&file));
            self.set(&keys::of(&file, Tag::Record), row);
        }
        match self.corrupt.into_inner() {
            Some(corrupt) => Err(corrupt),
            None => {
                let Files { live, regions, paths, digest, dying, .. } = self;
                Ok(Surroundings { live, regions, paths, digest, dying, decoded })
            }
        }
    }

    /// Notes a row that cannot be read.
    fn sound<T>(&self, result: Result<T, Corrupt>) -> Option<T> {
        result.map_err(|corrupt| self.corrupt.borrow_mut().get_or_insert(corrupt).clone()).ok()
    }

    /// The record of `file`, if there is such a file.
    pub fn record(&self, file: &FileId) -> Option<Arc<Record>> {
        if let Some(known) = self.records.borrow().get(file) {
            // The region of the file may have left in this very turn.
            return known.filter(|_| self.regions.manage(file)).cloned();
        }
        let key = keys::of(file, Tag::Record);
        let row = self.regions.manage(file).then(|| self.store.get(&key)).flatten();
        let decoded = |row: Vec<u8>| self.sound(Record::of_the_living(file, &key, &row, &self.live));
        let record = row.and_then(decoded).map(Arc::new);
        self.records.borrow_mut().decoded(file, record.clone());
        record
    }

    /// The record of `file`, to be changed.
    pub fn record_mut(&mut self, file: &FileId) -> Option<&mut Record> {
        self.record(file)?;
        self.records.get_mut().change(file)
    }

    /// Creates or deletes the record of `file`.
    pub fn set_record(&mut self, file: &FileId, record: Option<Record>) {
        self.records.get_mut().set(file, record);
    }

    /// The holdings of `file`.
    pub fn holdings(&self, file: &FileId) -> Arc<Holdings> {
        self.record(file).map(|record| record.holdings.clone()).unwrap_or_default()
    }

    /// Changes the holdings of `file`, and keeps the index of shields in step. No session holds
    /// anything of a file that does not exist.
    pub fn change_holdings(&mut self, file: &FileId, change: impl FnOnce(&mut Holdings)) {
        self.change_shields(file, |record| change(Arc::make_mut(&mut record.holdings)));
    }

    /// Changes the locks of `file`, and keeps the same index in step.
    pub fn change_locks(&mut self, file: &FileId, change: impl FnOnce(&mut LockTable<(SessionId, u64)>)) {
        self.change_shields(file, |record| change(&mut record.locks));
    }

    fn change_shields(&mut self, file: &FileId, change: impl FnOnce(&mut Record)) {
        let Some(record) = self.record_mut(file) else { return };
        let before = record.shields();
        change(record);
        let after = record.shields();
        for session in before.iter().filter(|session| !after.contains(session)) {
            self.set_row(Table::Shield, &keys::shield(*session, file), None);
        }
        for session in after.iter().filter(|session| !before.contains(session)) {
            self.set_row(Table::Shield, &keys::shield(*session, file), Some(Vec::new()));
        }
    }

    /// The first `limit` files that `session` is stuck at having open or has locked, from the row
    /// at `start` on (or all), with their rows' keys.
    pub fn shields(&self, session: SessionId, start: Option<&[u8]>, limit: usize) -> Vec<(Vec<u8>, FileId)> {
        let first = Table::Shield.key(&keys::shields_of(session));
        let end = match session.0.checked_add(1) {
            Some(next) => Table::Shield.key(&keys::shields_of(SessionId(next))),
            None => Table::Shield.range().1,
        };
        let rows = self.store.scan(start.unwrap_or(&first), &end, limit);
        let file = |key: &[u8]| self.sound(keys::shield_of(key)).map(|(_, file)| file);
        rows.into_iter().filter_map(|(key, _)| file(&key).map(|file| (key, file))).collect()
    }

    /// Ends `session`: its leases count for nothing from now on. Its shields count until they are
    /// cleared.
    pub fn end_session(&mut self, session: SessionId) {
        self.live.remove(&session);
        self.records.get_mut().end_session(session);
    }

    /// The entry that exactly `label` is bound to.
    pub fn child(&self, dir: &FileId, label: &Label) -> Option<Entry> {
        let key = keys::child(dir, label);
        if let Some((_, entry)) = self.last_child.borrow().as_ref().filter(|(last, _)| *last == key) {
            return entry.clone();
        }
        let row = self.store.get(&key);
        let entry = row.and_then(|row| self.sound(entry_from_bytes(dir, &key, &row)));
        *self.last_child.borrow_mut() = Some((key, entry.clone()));
        entry
    }

    /// Binds `label`, whatever it was bound to before.
    pub fn bind(&mut self, dir: &FileId, label: &Label, entry: &Entry) {
        let unused_from = entry.position.saturating_add(1);
        if let Some(record) = self.record_mut(dir) {
            record.unused_from = record.unused_from.max(unused_from);
        }
        match self.child(dir, label) {
            Some(old) if old.position != entry.position => self.set(&keys::position(dir, old.position), None),
            Some(_) => {}
            None => {
                if let Some(record) = self.record_mut(dir) {
                    record.children += 1;
                }
            }
        }
        self.last_child.take();
        self.set(&keys::child(dir, label), Some(entry_to_bytes(dir, entry)));
        self.set(&keys::position(dir, entry.position), Some(label.as_bytes().to_vec()));
    }

    /// Unbinds `label`.
    pub fn unbind(&mut self, dir: &FileId, label: &Label) {
        let Some(old) = self.child(dir, label) else { return };
        self.last_child.take();
        self.set(&keys::child(dir, label), None);
        self.set(&keys::position(dir, old.position), None);
        if let Some(record) = self.record_mut(dir) {
            record.children = record.children.saturating_sub(1);
        }
    }

    /// All labels of `dir` that fold to `folded`.
    pub fn children_folding_to(&self, dir: &FileId, folded: &Label) -> Vec<(Label, Entry)> {
        let (start, end) = keys::children_folding_to(dir, folded);
        let rows = self.store.scan(&start, &end, usize::MAX);
        let parse = |(key, row): (Vec<u8>, Vec<u8>)| {
            let label = keys::label_of_child(dir, &key)?;
            Ok((label, entry_from_bytes(dir, &key, &row)?))
        };
        rows.into_iter().filter_map(|row| self.sound(parse(row))).collect()
    }

    /// The first `limit` entries of `dir` whose position is greater than `after`, in the order of
    /// positions.
    pub fn page(&self, dir: &FileId, after: u64, limit: usize) -> Vec<(Label, Entry)> {
        let start = keys::position(dir, after.saturating_add(1));
        let rows = self.store.scan(&start, &keys::end_of(dir, Tag::Position), limit);
        let parse = |(key, row): (Vec<u8>, Vec<u8>)| {
            let label = Label::new(&row).map_err(|_| Corrupt::at(&key, "label"))?;
            let entry = self.child(dir, &label).ok_or_else(|| Corrupt::at(&key, "entry of the position"))?;
            Ok((label, entry))
        };
        rows.into_iter().filter_map(|row| self.sound(parse(row))).collect()
    }

    /// The first `limit` files after `file` in the order of identifiers, within the region at
    /// `top`.
    pub fn next_files(&self, file: &FileId, top: &FileId, limit: usize) -> Vec<FileId> {
        let start = keys::end_of(file, Tag::Record);
        let end = top.region_range().1.unwrap_or_else(|| keys::BEYOND.to_vec());
        let (mut files, mut rows) = (Vec::new(), 0);
        self.store.walk(&start, &end, &mut |key, _| {
            rows += 1;
            // Most rows are no records, and their keys end otherwise.
            if key.ends_with(&[Tag::Record as u8])
                && let Some(keys::RowOf::File(file, tag, _)) = self.sound(keys::row_of(key))
                && tag == Tag::Record as u8
            {
                files.push(file);
            }
            files.len() < limit && rows < limit * ROWS_OF_FILE
        });
        files
    }

    /// The label at `position`.
    pub fn label_at(&self, dir: &FileId, position: u64) -> Option<Label> {
        let key = keys::position(dir, position);
        let row = self.store.get(&key)?;
        self.sound(Label::new(&row).map_err(|_| Corrupt::at(&key, "label")))
    }

    /// Sealed inline content, or a link's target.
    pub fn inline(&self, file: &FileId) -> Vec<u8> {
        match self.record(file) {
            Some(record) if record.inline_bytes > 0 => {
                let key = keys::of(file, Tag::Inline);
                let row = self.store.get(&key).ok_or_else(|| Corrupt::at(&key, "inline content"));
                self.sound(row).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }

    /// Sets the sealed inline content, or a link's target, to `bytes`.
    pub fn set_inline(&mut self, file: &FileId, bytes: &[u8]) {
        let Some(record) = self.record_mut(file) else { return };
        let had = std::mem::replace(&mut record.inline_bytes, bytes.len() as u32) > 0;
        if had || !bytes.is_empty() {
            self.set(&keys::of(file, Tag::Inline), (!bytes.is_empty()).then(|| bytes.to_vec()));
        }
    }

    /// An extended attribute.
    pub fn xattr(&self, file: &FileId, name: &Label) -> Option<Vec<u8>> {
        (self.record(file)?.xattrs > 0)
            .then(|| self.store.get(&keys::with(file, Tag::Xattr, name.as_bytes())))?
    }

    /// All extended attributes.
    pub fn xattrs(&self, file: &FileId) -> Vec<(Label, Vec<u8>)> {
        if self.record(file).is_none_or(|record| record.xattrs == 0) {
            return Vec::new();
        }
        let rows = self.store.scan(&keys::of(file, Tag::Xattr), &keys::end_of(file, Tag::Xattr), usize::MAX);
        let parse = |(key, row): (Vec<u8>, Vec<u8>)| {
            let name = Label::attribute(keys::sub_key(file, &key)?).map_err(|_| Corrupt::at(&key, "name"))?;
            Ok((name, row))
        };
        rows.into_iter().filter_map(|row| self.sound(parse(row))).collect()
    }

    /// Sets the extended attribute to `value`, or removes it.
    pub fn set_xattr(&mut self, file: &FileId, name: &Label, value: Option<Vec<u8>>) {
        let had = self.xattr(file, name).is_some();
        let Some(record) = self.record_mut(file) else { return };
        record.xattrs = record.xattrs.saturating_sub(u32::from(had)) + u32::from(value.is_some());
        self.set(&keys::with(file, Tag::Xattr, name.as_bytes()), value);
    }

    /// The first `limit` extents that end beyond `offset`, in order.
    pub fn extents(&self, file: &FileId, offset: u64, limit: usize) -> Vec<Extent> {
        if self.record(file).is_none_or(|record| record.extents == 0) {
            return Vec::new();
        }
        let start = keys::extent(file, offset.saturating_add(1));
        let rows = self.store.scan(&start, &keys::end_of(file, Tag::Extent), limit);
        rows.into_iter().filter_map(|(key, row)| self.sound(extent_from_row(&key, &row))).collect()
    }

    /// The first `limit` extents that reach into `from..to`, in order.
    pub fn outlines(&self, file: &FileId, from: u64, to: u64, limit: usize) -> Vec<Outline> {
        let mut outlines = Vec::new();
        if self.record(file).is_none_or(|record| record.extents == 0) {
            return outlines;
        }
        let start = keys::extent(file, from.saturating_add(1));
        self.store.walk(&start, &keys::end_of(file, Tag::Extent), &mut |key, row| {
            let Some(extent) = self.sound(extent_from_row::<&[u8]>(key, row)) else { return false };
            let Extent { offset, length, piece, .. } = extent;
            if offset >= to {
                return false;
            }
            outlines.push(Outline { offset, end: offset + u64::from(length), share: piece.place.share() });
            outlines.len() < limit
        });
        outlines
    }

    /// The extent that ends at `end`.
    pub fn extent(&self, file: &FileId, end: u64) -> Option<Extent> {
        let key = keys::extent(file, end);
        let row = self.store.get(&key)?;
        self.sound(extent_from_row(&key, &row))
    }

    /// Adds or removes the extent that ends at `end`.
    pub fn set_extent(&mut self, file: &FileId, end: u64, extent: Option<&Extent>) {
        let row = extent.map(wire::encode);
        self.set(&keys::extent(file, end), row);
    }

    /// A row of a table.
    pub fn row(&self, table: Table, sub: &[u8]) -> Option<Vec<u8>> {
        self.store.get(&table.key(sub))
    }

    /// Sets or removes a row of a table.
    pub fn set_row(&mut self, table: Table, sub: &[u8], value: Option<Vec<u8>>) {
        self.set(&table.key(sub), value);
    }

    /// The first `limit` rows of a table from `start` on (or all).
    pub fn table(&self, table: Table, start: Option<&[u8]>, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (first, end) = table.range();
        self.store.scan(start.unwrap_or(&first), &end, limit)
    }

    /// Whether `file` is dead but has rows left: its identifier must not be used again before they
    /// are gone.
    pub fn is_dying(&self, file: &FileId) -> bool {
        self.dying > 0 && self.row(Table::Dying, file.as_bytes()).is_some()
    }

    /// Records that `file` is dead and has rows left.
    pub fn set_dying(&mut self, file: &FileId) {
        self.dying += 1;
        self.set_row(Table::Dying, file.as_bytes(), Some(Vec::new()));
    }

    /// Decodes the value of a row of a table.
    pub fn parse<T: for<'de> Deserialize<'de>>(&self, key: &[u8], row: &[u8]) -> Option<T> {
        self.sound(exact(row).ok_or_else(|| Corrupt::at(key, "value")))
    }

    /// Notes a key that cannot be read.
    pub fn parse_key<T>(&self, result: Result<T, Corrupt>) -> Option<T> {
        self.sound(result)
    }

    /// The first `limit` rows from `start` on, whatever they are of.
    pub fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.store.scan(start, end, limit)
    }

    /// The first `limit` rows of `file` in the range of these tags.
    pub fn rows(&self, file: &FileId, first: Tag, last: Tag, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.store.scan(&keys::of(file, first), &keys::end_of(file, last), limit)
    }

    /// Sets or removes a row.
    pub fn set(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        self.digest = mix(self.digest, key);
        match value {
            Some(value) => {
                self.digest = mix(self.digest, &value);
                self.store.put(key, value);
            }
            None => self.store.delete(key),
        }
    }
}

/// Reads an extent's row: it must end where its key says.
pub(crate) fn extent_from_row<'r, B: Deserialize<'r>>(
    key: &[u8],
    row: &'r [u8],
) -> Result<Extent<B>, Corrupt> {
    let extent: Extent<B> = exact(row).ok_or_else(|| Corrupt::at(key, "extent"))?;
    let end = extent.offset.checked_add(extent.length.into()).map(u64::to_be_bytes);
    match end {
        Some(end) if key.ends_with(&end) => Ok(extent),
        _ => Err(Corrupt::at(key, "extent")),
    }
}

/// Mixes bytes into a running hash. The hash compares replicas; it gives no protection against
/// deliberate tampering.
fn mix(hash: u64, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(hash, bytes)
}
