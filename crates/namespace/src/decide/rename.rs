//! rename, with replacement, without, and exchange. It concerns up to four files (two directories,
//! the moved file, the target), of which Farsite §4.2 has three.

use super::case::{Case, Decided, Stop};
use super::create::Create;
use super::permission::{WRITE, enter, may_change, may_take, permits};
use super::unlink::{entry_at, lose_link, must_be, must_be_empty, must_be_meant};
use crate::{
    Answer, Attributes, Cred, Disposition, Effect, Entry, Error, FileKind, Knowledge, Link, RenameMode,
    Replaced, Timestamp, Whiteout,
};
use ident::FileId;
use lease::{Field, Kind, Label};
use serde::{Deserialize, Serialize};

/// Rename. `position` is the moved entry's new place in `to_dir`, unless an entry is replaced
/// there or exchanged. A label that is bound throughout keeps its position, so that no listing
/// misses it. `open` is as in `Unlink`, for a replaced file.
///
/// `source` is the file that is meant, and `replaced` the one that may go; without them the names
/// count alone. A moved file takes its pending deletion along.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rename {
    pub from_dir: FileId,
    pub from: Label,
    pub source: Option<FileId>,
    pub to_dir: FileId,
    pub to: Label,
    pub mode: RenameMode,
    pub replaced: Option<Box<Replaced>>,
    pub position: u64,
    pub whiteout: Option<Whiteout>,
    pub open: bool,
    pub cred: Cred,
    pub time: Timestamp,
}

impl Rename {
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let from_dir = enter(case, &self.from_dir, &self.cred)?;
        let to_dir = if self.stays() { from_dir } else { enter(case, &self.to_dir, &self.cred)? };
        let source = case.child(&self.from_dir, &self.from, Kind::Write)?.ok_or(Error::NotFound)?;
        must_be_meant(&source, self.source.as_ref())?;
        let target = entry_at(case, (&self.to_dir, &self.to), self.replaced.as_deref())?;
        match (self.mode, &target) {
            (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists.into()),
            (RenameMode::Exchange, None) => return Err(Error::NotFound.into()),
            // POSIX: two links of one file stay as they are, and the rename succeeds.
            (_, Some(target)) if target.file == source.file => {
                case.change_nothing();
                return Ok(Answer::Entry(target.clone()));
            }
            _ => {}
        }
        may_change(case, &self.from_dir, &from_dir, &self.cred)?;
        may_take(case, &from_dir, &source.file, &self.cred)?;
        if !self.stays() {
            may_change(case, &self.to_dir, &to_dir, &self.cred)?;
            case.may_gain_entries(&self.to_dir)?;
        }
        if let Some(target) = &target {
            may_take(case, &to_dir, &target.file, &self.cred)?;
            if self.mode != RenameMode::Exchange {
                must_be(target, source.kind == FileKind::Directory)?;
            }
        }
        if self.whiteout.is_some() {
            case.may_gain_entries(&self.from_dir)?;
        }
        self.may_go(case, &source, &self.to_dir)?;
        let stays_bound = target.as_ref().filter(|_| *self.lost() == self.to);
        let position = stays_bound.map_or(self.position, |target| target.position);
        match target {
            Some(target) if self.mode == RenameMode::Exchange => {
                self.may_go(case, &target, &self.from_dir)?;
                let back = Entry { position: source.position, ..target };
                self.place(case, back, (&self.to_dir, &self.to), (&self.from_dir, &self.from))?;
            }
            Some(target) => {
                must_be_empty(case, &target)?;
                case.effects.push(Effect::Unbind { dir: self.from_dir.clone(), label: self.from.clone() });
                let lost = Link { dir: self.to_dir.clone(), label: self.lost().clone() };
                if lost.label != self.to {
                    case.effects.push(Effect::Unbind { dir: lost.dir.clone(), label: lost.label.clone() });
                }
                lose_link(case, &target.file, lost, self.open, self.time)?;
            }
            None => {
                case.effects.push(Effect::Unbind { dir: self.from_dir.clone(), label: self.from.clone() })
            }
        }
        let moved = Entry { position, ..source.clone() };
        self.place(case, moved.clone(), (&self.from_dir, &self.from), (&self.to_dir, &self.to))?;
        if let Some(left) = self.whiteout {
            let (dir, label, new) = (self.from_dir.clone(), self.from.clone(), left.new_file(&self.from_dir));
            let (position, cred, time) = (left.integer, self.cred.clone(), self.time);
            Create { dir, label, position, new, cred, time }.make(case, &from_dir)?;
        }
        case.touch(&self.from_dir, self.time);
        if !self.stays() {
            case.touch(&self.to_dir, self.time);
        }
        Ok(Answer::Entry(moved))
    }

    /// The name that a replaced file loses.
    fn lost(&self) -> &Label {
        self.replaced.as_ref().map_or(&self.to, |replaced| &replaced.label)
    }

    /// Whether both labels are in one directory.
    fn stays(&self) -> bool {
        self.from_dir == self.to_dir
    }

    /// Checks that a directory may get another parent. The move changes the directory itself (its
    /// `..`), and the directory must not end up inside itself.
    ///
    /// Only a server knows the paths of directories, so a client's decision ends here.
    fn may_go<K: Knowledge + ?Sized>(
        &self,
        case: &mut Case<'_, K>,
        moved: &Entry,
        into: &FileId,
    ) -> Result<(), Stop> {
        if moved.kind != FileKind::Directory || self.stays() {
            return Ok(());
        }
        let attributes = case.attributes(&moved.file, Kind::Write)?;
        if !permits(case, &moved.file, &attributes, &self.cred, WRITE)? {
            return Err(Error::AccessDenied.into());
        }
        if moved.file == *into || case.is_above(&moved.file, into)? {
            return Err(Error::Invalid.into());
        }
        Ok(())
    }

    /// Moves the link of `entry` from `old` to `new`, and the pending deletion of that link. The
    /// caller unbinds the label at `old`.
    fn place<K: Knowledge + ?Sized>(
        &self,
        case: &mut Case<'_, K>,
        entry: Entry,
        old: (&FileId, &Label),
        new: (&FileId, &Label),
    ) -> Result<(), Stop> {
        let file = entry.file.clone();
        let attributes = case.attributes(&file, Kind::Write)?;
        case.hold(&file, Field::Parent, Kind::Write);
        let attributes = Attributes { ctime: attributes.ctime.moved(self.time), ..attributes };
        let link = |(dir, label): (&FileId, &Label)| Link { dir: dir.clone(), label: label.clone() };
        if let Some(pending) = case.disposition(&file, Kind::Read)?.filter(|it| it.link == link(old)) {
            case.hold(&file, Field::Disposition, Kind::Write);
            let disposition = Some(Disposition { link: link(new), ..pending });
            case.effects.push(Effect::Disposition { file: file.clone(), disposition });
        }
        case.effects.push(Effect::Bind { dir: new.0.clone(), label: new.1.clone(), entry });
        case.effects.push(Effect::DropLink { file: file.clone(), link: link(old) });
        case.effects.push(Effect::AddLink { file: file.clone(), link: link(new) });
        case.effects.push(Effect::Attributes { file, attributes });
        Ok(())
    }
}
