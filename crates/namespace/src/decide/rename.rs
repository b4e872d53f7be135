//! rename, with replacement, without, and exchange. It concerns up to four files (two directories,
//! the moved file, the target), of which Farsite §4.2 has three.

use super::Decided;
use super::case::{Case, Stop};
use super::create::make;
use super::permission::{WRITE, enter, may_change, may_take, permits};
use super::unlink::{lose_link, must_be, must_be_empty};
use crate::{
    Answer, Attributes, Cred, Effect, Entry, Error, FileKind, Knowledge, Link, RenameMode, Timestamp,
    Whiteout,
};
use ident::FileId;
use lease::{Field, Kind, Label};

/// The parts of [`crate::Operation::Rename`].
pub(super) struct Rename<'o> {
    pub from_dir: &'o FileId,
    pub from: &'o Label,
    pub to_dir: &'o FileId,
    pub to: &'o Label,
    pub mode: RenameMode,
    pub position: u64,
    pub whiteout: Option<Whiteout>,
    pub open: bool,
    pub cred: &'o Cred,
    pub time: Timestamp,
}

pub(super) fn rename<K: Knowledge + ?Sized>(case: &mut Case<'_, K>, r: &Rename<'_>) -> Decided {
    let from_dir = enter(case, r.from_dir, r.cred)?;
    let to_dir = if r.stays() { from_dir } else { enter(case, r.to_dir, r.cred)? };
    let source = case.child(r.from_dir, r.from, Kind::Write)?.ok_or(Error::NotFound)?;
    let target = case.child(r.to_dir, r.to, Kind::Write)?;
    match (r.mode, &target) {
        (RenameMode::NoReplace, Some(_)) => return Err(Error::Exists.into()),
        (RenameMode::Exchange, None) => return Err(Error::NotFound.into()),
        // POSIX: two links of one file stay as they are, and the rename succeeds.
        (_, Some(target)) if target.file == source.file => {
            case.change_nothing();
            return Ok(Answer::Entry(target.clone()));
        }
        _ => {}
    }
    may_change(case, r.from_dir, &from_dir, r.cred)?;
    may_take(case, &from_dir, &source.file, r.cred)?;
    if !r.stays() {
        may_change(case, r.to_dir, &to_dir, r.cred)?;
        case.may_gain_entries(r.to_dir)?;
    }
    if let Some(target) = &target {
        may_take(case, &to_dir, &target.file, r.cred)?;
        if r.mode != RenameMode::Exchange {
            must_be(target, source.kind == FileKind::Directory)?;
        }
    }
    if r.whiteout.is_some() {
        case.may_gain_entries(r.from_dir)?;
    }
    may_go(case, r, &source, r.to_dir)?;
    let position = target.as_ref().map_or(r.position, |target| target.position);
    match target {
        Some(target) if r.mode == RenameMode::Exchange => {
            may_go(case, r, &target, r.from_dir)?;
            let back = Entry { position: source.position, ..target };
            place(case, r, back, (r.to_dir, r.to), (r.from_dir, r.from))?;
        }
        Some(target) => {
            must_be_empty(case, &target)?;
            case.effects.push(Effect::Unbind { dir: r.from_dir.clone(), label: r.from.clone() });
            let lost = Link { dir: r.to_dir.clone(), label: r.to.clone() };
            lose_link(case, &target.file, lost, r.open, r.time)?;
        }
        None => case.effects.push(Effect::Unbind { dir: r.from_dir.clone(), label: r.from.clone() }),
    }
    let moved = Entry { position, ..source.clone() };
    place(case, r, moved.clone(), (r.from_dir, r.from), (r.to_dir, r.to))?;
    if let Some(left) = r.whiteout {
        let new = left.new_file(r.from_dir);
        make(case, r.from_dir, &from_dir, r.from, left.integer, &new, r.cred, r.time)?;
    }
    case.touch(r.from_dir, r.time);
    if !r.stays() {
        case.touch(r.to_dir, r.time);
    }
    Ok(Answer::Entry(moved))
}

impl Rename<'_> {
    /// Whether both labels are in one directory.
    fn stays(&self) -> bool {
        self.from_dir == self.to_dir
    }
}

/// Checks that a directory may get another parent. The move changes the directory itself (its
/// `..`), and the directory must not end up inside itself.
///
/// Only a server knows the paths of directories, so a client's decision ends here.
fn may_go<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    r: &Rename<'_>,
    moved: &Entry,
    into: &FileId,
) -> Result<(), Stop> {
    if moved.kind != FileKind::Directory || r.stays() {
        return Ok(());
    }
    let attributes = case.attributes(&moved.file, Kind::Write)?;
    if !permits(case, &moved.file, &attributes, r.cred, WRITE)? {
        return Err(Error::AccessDenied.into());
    }
    if moved.file == *into || case.is_above(&moved.file, into)? {
        return Err(Error::Invalid.into());
    }
    Ok(())
}

/// Moves the link of `entry` from `old` to `new`. The caller unbinds the label at `old`.
fn place<K: Knowledge + ?Sized>(
    case: &mut Case<'_, K>,
    r: &Rename<'_>,
    entry: Entry,
    old: (&FileId, &Label),
    new: (&FileId, &Label),
) -> Result<(), Stop> {
    let file = entry.file.clone();
    let attributes = case.attributes(&file, Kind::Write)?;
    case.hold(&file, Field::Parent, Kind::Write);
    let attributes = Attributes { ctime: attributes.ctime.moved(r.time), ..attributes };
    let link = |(dir, label): (&FileId, &Label)| Link { dir: dir.clone(), label: label.clone() };
    case.effects.push(Effect::Bind { dir: new.0.clone(), label: new.1.clone(), entry });
    case.effects.push(Effect::DropLink { file: file.clone(), link: link(old) });
    case.effects.push(Effect::AddLink { file: file.clone(), link: link(new) });
    case.effects.push(Effect::Attributes { file, attributes });
    Ok(())
}
