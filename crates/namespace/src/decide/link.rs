//! A further label for a file.

use super::case::{Case, Decided, Stop};
use super::permission::{enter, may_change, may_take};
use super::unlink::{entry_at, lose_link, must_be};
use crate::{Answer, Attributes, Cred, Effect, Entry, Error, FileKind, Knowledge, Replaced, Timestamp};
use ident::FileId;
use lease::{Field, Kind, Label};
use serde::{Deserialize, Serialize};

/// The most labels that a file has, as on ext4. It bounds the size of `Parent`.
pub const LINKS_MAX: u32 = 65_000;

/// A further label for a file that is not a directory. The file that `replaced` names loses its
/// label to this one, and then `position` and `open` are as in [`super::Rename`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    pub file: FileId,
    pub dir: FileId,
    pub label: Label,
    pub replaced: Option<Box<Replaced>>,
    pub position: u64,
    pub open: bool,
    pub cred: Cred,
    pub time: Timestamp,
}

impl Link {
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let Link { file, dir, label, replaced, cred, time, .. } = self;
        let parent = enter(case, dir, cred)?;
        let target = entry_at(case, (dir, label), replaced.as_deref())?;
        match &target {
            Some(_) if replaced.is_none() => return Err(Error::Exists.into()),
            // The file has the name already.
            Some(target) if target.file == *file => {
                case.change_nothing();
                return Ok(Answer::Entry(target.clone()));
            }
            _ => {}
        }
        may_change(case, dir, &parent, cred)?;
        if let Some(target) = &target {
            may_take(case, &parent, &target.file, cred)?;
            must_be(target, false)?;
        }
        case.may_gain_entries(dir)?;
        let attributes = case.attributes(file, Kind::Write)?;
        match attributes {
            Attributes { kind: FileKind::Directory, .. } => return Err(Error::NotPermitted.into()),
            // The file has only open handles left, and its death may be on its way.
            Attributes { links: 0, .. } => return Err(Error::NotFound.into()),
            Attributes { links: LINKS_MAX.., .. } => return Err(Error::TooManyLinks.into()),
            _ => {}
        }
        case.hold(file, Field::Parent, Kind::Write);
        let position = target.map_or(Ok(self.position), |target| self.take_from(case, &target))?;
        let entry = Entry { file: file.clone(), kind: attributes.kind, ino: attributes.ino, position };
        let link = crate::Link { dir: dir.clone(), label: label.clone() };
        let attributes =
            Attributes { links: attributes.links + 1, ctime: attributes.ctime.moved(*time), ..attributes };
        case.effects.push(Effect::Bind { dir: dir.clone(), label: label.clone(), entry: entry.clone() });
        case.effects.push(Effect::AddLink { file: file.clone(), link });
        case.effects.push(Effect::Attributes { file: file.clone(), attributes });
        case.touch(dir, *time);
        Ok(Answer::Entry(entry))
    }

    /// Takes the name from the file that has it. Returns the position of the new entry.
    fn take_from<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>, target: &Entry) -> Result<u64, Stop> {
        let label = self.replaced.as_ref().map_or(&self.label, |replaced| &replaced.label);
        let lost = crate::Link { dir: self.dir.clone(), label: label.clone() };
        let stays_bound = *label == self.label;
        if !stays_bound {
            case.effects.push(Effect::Unbind { dir: lost.dir.clone(), label: lost.label.clone() });
        }
        lose_link(case, &target.file, lost, self.open, self.time)?;
        Ok(if stays_bound { target.position } else { self.position })
    }
}
