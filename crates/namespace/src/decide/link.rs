//! A further label for a file.

use super::case::{Case, Decided};
use super::permission::{enter, may_change};
use crate::{Answer, Attributes, Cred, Effect, Entry, Error, FileKind, Knowledge, Timestamp};
use ident::FileId;
use lease::{Field, Kind, Label};
use serde::{Deserialize, Serialize};

/// The most labels that a file has, as on ext4. It bounds the size of `Parent`.
pub const LINKS_MAX: u32 = 65_000;

/// A further label for a file that is not a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    pub file: FileId,
    pub dir: FileId,
    pub label: Label,
    pub position: u64,
    pub cred: Cred,
    pub time: Timestamp,
}

impl Link {
    pub(super) fn decide<K: Knowledge + ?Sized>(&self, case: &mut Case<'_, K>) -> Decided {
        let Link { file, dir, label, position, cred, time } = self;
        let parent = enter(case, dir, cred)?;
        if case.child(dir, label, Kind::Write)?.is_some() {
            return Err(Error::Exists.into());
        }
        may_change(case, dir, &parent, cred)?;
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
        let entry =
            Entry { file: file.clone(), kind: attributes.kind, ino: attributes.ino, position: *position };
        let link = crate::Link { dir: dir.clone(), label: label.clone() };
        let attributes =
            Attributes { links: attributes.links + 1, ctime: attributes.ctime.moved(*time), ..attributes };
        case.effects.push(Effect::Bind { dir: dir.clone(), label: label.clone(), entry: entry.clone() });
        case.effects.push(Effect::AddLink { file: file.clone(), link });
        case.effects.push(Effect::Attributes { file: file.clone(), attributes });
        case.touch(dir, *time);
        Ok(Answer::Entry(entry))
    }
}
