//! Carries out decisions: each effect changes one row or a few.

use crate::rows::extents::References;
use crate::rows::files::{Files, extent_from_row};
use crate::rows::keys::{Table, Tag};
use crate::rows::record::Record;
use ident::FileId;
use lease::{Holdings, SessionId};
use namespace::{Effect, LockTable, Times};
use wire::{MachineId, ShareWork};

/// Rows of a dead file that go at once, or in one tick: a file with millions of extents must not
/// hold up others.
pub(crate) const DYING_ROWS_PER_STEP: usize = 512;

/// The work that effects leave beyond the rows.
#[derive(Debug, Default)]
pub(crate) struct Aftermath {
    /// Files that came into being.
    pub born: Vec<FileId>,
    /// Files that are to go with their last handle from now on.
    pub doomed: Vec<FileId>,
    /// Files that no longer exist.
    pub dead: Vec<FileId>,
    /// Work on shares.
    pub shares: Vec<ShareWork>,
}

impl Files<'_> {
    /// Carries out the `effects` of a decision of `session`, which is a session of `machine`, in
    /// order.
    pub fn apply(
        &mut self,
        session: SessionId,
        machine: Option<MachineId>,
        effects: &[Effect],
        aftermath: &mut Aftermath,
    ) {
        let mut references = References::default();
        for effect in effects {
            self.apply_one(session, effect, aftermath, &mut references);
        }
        self.settle(references, machine, &mut aftermath.shares);
    }

    fn apply_one(
        &mut self,
        session: SessionId,
        effect: &Effect,
        aftermath: &mut Aftermath,
        references: &mut References,
    ) {
        match effect {
            Effect::Birth { file, attributes, content, target, times } => {
                self.set_record(file, Some(Record::born(*attributes, *content, *times)));
                self.set_inline(file, target);
                aftermath.born.push(file.clone());
            }
            Effect::Bind { dir, label, entry } => self.bind(dir, label, entry),
            Effect::Unbind { dir, label } => self.unbind(dir, label),
            Effect::AddLink { file, link } => self.edit(file, |record| record.links.push(link.clone())),
            Effect::DropLink { file, link } => {
                self.edit(file, |record| record.links.retain(|other| other != link))
            }
            Effect::Attributes { file, attributes } => {
                self.edit(file, |record| record.attributes = *attributes)
            }
            Effect::Touch { dir, time } => {
                self.edit(dir, |record| record.times = record.times.touched(*time))
            }
            Effect::Times { dir, times } => self.edit(dir, |record| record.times = Times { ..*times }),
            Effect::Xattr { file, name, value } => self.set_xattr(file, name, value.clone()),
            Effect::Content { file, head, change } => self.publish(file, *head, change, references),
            Effect::Disposition { file, disposition } => {
                self.edit(file, |record| record.disposition = disposition.clone().map(Box::new));
                self.set_doomed(file, disposition.is_some(), aftermath);
            }
            Effect::Lock { file, change } => self.change_locks(file, |locks| locks.change(&session, change)),
            Effect::Orphan { file } => self.set_doomed(file, true, aftermath),
            Effect::Death { file } => {
                self.bury(file, references);
                aftermath.dead.push(file.clone());
            }
        }
    }

    fn edit(&mut self, file: &FileId, change: impl FnOnce(&mut Record)) {
        if let Some(record) = self.record_mut(file) {
            change(record);
        }
    }

    /// Deletes the file. Its record goes at once, and with it every lease on the file; its other
    /// rows go in steps.
    fn bury(&mut self, file: &FileId, references: &mut References) {
        let Some(record) = self.record(file) else { return };
        if record.is_doomed() {
            self.set_row(Table::Doomed, file.as_bytes(), None);
        }
        self.set_inline(file, &[]);
        self.change_holdings(file, |holdings| *holdings = Holdings::default());
        if !record.locks.is_empty() {
            self.change_locks(file, |locks| *locks = LockTable::default());
        }
        self.set_record(file, None);
        let rows = record.extents + u64::from(record.xattrs);
        if rows > 0 && !self.clear(file, references) {
            self.set_dying(file);
        }
    }

    fn set_doomed(&mut self, file: &FileId, doomed: bool, aftermath: &mut Aftermath) {
        let row = self.record(file).filter(|record| record.is_doomed()).map(|_| Vec::new());
        self.set_row(Table::Doomed, file.as_bytes(), row);
        if doomed {
            aftermath.doomed.push(file.clone());
        }
    }

    /// Removes some rows of a dead file; whether none is left.
    fn clear(&mut self, file: &FileId, references: &mut References) -> bool {
        // One more than go tells whether any is left.
        let mut rows = self.rows(file, Tag::Extent, Tag::Xattr, DYING_ROWS_PER_STEP + 1);
        let left = rows.len() > DYING_ROWS_PER_STEP;
        rows.truncate(DYING_ROWS_PER_STEP);
        for (key, row) in rows {
            if key.get(file.as_bytes().len()) == Some(&(Tag::Extent as u8))
                && let Some(extent) = self.parse_key(extent_from_row::<&[u8]>(&key, &row))
            {
                references.count(file, extent.piece.place.share(), -1);
            }
            self.set(&key, None);
        }
        !left
    }

    /// One step of clearing dead files away; whether there is more to do.
    pub fn clear_dying(&mut self, shares: &mut Vec<ShareWork>) -> bool {
        if self.dying == 0 {
            return false;
        }
        let dying = self.table(Table::Dying, None, 2);
        let Some((key, _)) = dying.first() else { return false };
        let Some(file) = self.parse_key(Table::Dying.file(key)) else { return false };
        let mut references = References::default();
        let cleared = self.clear(&file, &mut references);
        self.settle(references, None, shares);
        if cleared {
            self.dying = self.dying.saturating_sub(1);
            self.set(key, None);
        }
        !cleared || dying.len() > 1
    }
}
