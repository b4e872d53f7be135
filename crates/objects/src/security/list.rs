//! Access control lists and their entries (MS-DTYP §2.4.4, §2.4.5).

use super::sid::Sid;
use crate::rights;

/// ACCESS_ALLOWED_ACE_TYPE and ACCESS_DENIED_ACE_TYPE.
const ALLOWED: u8 = 0;
const DENIED: u8 = 1;

/// OBJECT_INHERIT_ACE, CONTAINER_INHERIT_ACE, NO_PROPAGATE_INHERIT_ACE, INHERIT_ONLY_ACE,
/// INHERITED_ACE.
const ON_FILES: u8 = 1;
const ON_DIRECTORIES: u8 = 2;
const ONCE: u8 = 4;
const ONLY_BELOW: u8 = 8;
const INHERITED: u8 = 0x10;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccessControlEntry {
    kind: u8,
    flags: u8,
    /// Mask and identifier, or what else an entry of this kind has.
    body: Vec<u8>,
}

impl AccessControlEntry {
    pub(crate) fn allowed(mask: u32, sid: &Sid) -> AccessControlEntry {
        AccessControlEntry { kind: ALLOWED, flags: 0, body: [&mask.to_le_bytes()[..], &sid.0].concat() }
    }

    /// The mask and the identifier of an entry that allows or denies. Other kinds say nothing here.
    fn parts(&self) -> Option<(u32, Sid)> {
        let mask = u32::from_le_bytes(self.body.get(..4)?.try_into().ok()?);
        let sid = Sid::parse(self.body.get(4..)?)?;
        (self.kind <= DENIED).then_some((mask, sid))
    }

    /// Whether it allows, with the mask and the identifier, if it counts for the object itself.
    pub(crate) fn effective(&self) -> Option<(bool, u32, Sid)> {
        let (mask, sid) = self.parts().filter(|_| self.flags & ONLY_BELOW == 0)?;
        Some((self.kind == ALLOWED, mask, sid))
    }

    fn with(&self, flags: u8, mask: u32, sid: &Sid) -> AccessControlEntry {
        AccessControlEntry { kind: self.kind, flags, ..AccessControlEntry::allowed(mask, sid) }
    }

    /// Replaces generic rights by those that they stand for, where they count.
    fn specific(self) -> AccessControlEntry {
        match self.parts().filter(|_| self.flags & ONLY_BELOW == 0) {
            Some((mask, sid)) => self.with(self.flags, rights::without_generic(mask), &sid),
            None => self,
        }
    }
}

/// A list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccessControlList {
    revision: u8,
    pub(crate) entries: Vec<AccessControlEntry>,
}

impl AccessControlList {
    pub(crate) fn of(entries: Vec<AccessControlEntry>) -> AccessControlList {
        AccessControlList { revision: 2, entries }
    }

    /// Reads the list that the bytes begin with.
    pub(crate) fn parse(bytes: &[u8]) -> Option<AccessControlList> {
        let number =
            |at: usize| Some(usize::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)));
        let (size, count) = (number(2)?, number(4)?);
        let mut left = bytes.get(8..size)?;
        let mut entries = Vec::new();
        for _ in 0..count {
            let length = usize::from(u16::from_le_bytes(left.get(2..4)?.try_into().ok()?));
            let entry = left.get(..length).filter(|_| length >= 8)?;
            entries.push(AccessControlEntry { kind: entry[0], flags: entry[1], body: entry[4..].to_vec() });
            left = &left[length..];
        }
        Some(AccessControlList { revision: bytes[0], entries })
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let size = 8 + self.entries.iter().map(|entry| 4 + entry.body.len()).sum::<usize>();
        let mut out = vec![self.revision, 0];
        out.extend((size as u16).to_le_bytes());
        out.extend((self.entries.len() as u16).to_le_bytes());
        out.extend([0, 0]);
        for entry in &self.entries {
            out.extend([entry.kind, entry.flags]);
            out.extend((4 + entry.body.len() as u16).to_le_bytes());
            out.extend(&entry.body);
        }
        out
    }

    /// Replaces generic rights by those that they stand for.
    pub(crate) fn specific(self) -> AccessControlList {
        AccessControlList {
            entries: self.entries.into_iter().map(AccessControlEntry::specific).collect(),
            ..self
        }
    }

    /// The list of a new object below one with this list (MS-DTYP §2.5.3.4), if anything of it goes
    /// down. `is_marked` says in the entries that they are inherited.
    pub(crate) fn inherited(
        &self,
        is_directory: bool,
        (owner, group): (&Sid, &Sid),
        is_marked: bool,
    ) -> Option<AccessControlList> {
        let mark = if is_marked { INHERITED } else { 0 };
        let mut entries = Vec::new();
        for entry in &self.entries {
            let Some((mask, sid)) = entry.parts() else { continue };
            let goes_on = entry.flags & ONCE == 0;
            let below = entry.flags & (ON_FILES | ON_DIRECTORIES);
            let own = match &sid {
                sid if *sid == Sid::creator_owner() => owner,
                sid if *sid == Sid::creator_group() => group,
                sid => sid,
            };
            let specific = rights::without_generic(mask);
            let counts = below & if is_directory { ON_DIRECTORIES } else { ON_FILES } != 0;
            let is_same = *own == sid && specific == mask;
            if counts && is_directory && goes_on && is_same {
                entries.push(entry.with(below | mark, mask, &sid));
                continue;
            }
            if counts {
                entries.push(entry.with(mark, specific, own));
            }
            if is_directory && below != 0 && goes_on {
                entries.push(entry.with(below | ONLY_BELOW | mark, mask, &sid));
            }
        }
        (!entries.is_empty()).then_some(AccessControlList { revision: self.revision, entries })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADMITS: u32 = 2;

    fn entry(flags: u8, sid: &Sid) -> AccessControlEntry {
        AccessControlEntry { flags, ..AccessControlEntry::allowed(ADMITS, sid) }
    }

    fn inherited(flags: u8, sid: &Sid, is_directory: bool) -> Vec<(u8, Sid)> {
        let list = AccessControlList::of(vec![entry(flags, sid), entry(0, &Sid::everyone())]);
        let list = list.inherited(is_directory, (&Sid::user(1), &Sid::group(2)), false);
        let entries = list.map_or(Vec::new(), |list| list.entries);
        entries.into_iter().map(|entry| (entry.flags, entry.parts().unwrap().1)).collect()
    }

    /// The cases of smbtorture's INHERITANCE.
    #[test]
    fn entries_go_down_as_their_flags_say() {
        let (creator, owner) = (Sid::creator_owner(), Sid::user(1));
        for flags in [0, ONLY_BELOW, ONCE, ONCE | ONLY_BELOW] {
            assert_eq!(inherited(flags, &creator, false), []);
            assert_eq!(inherited(flags, &creator, true), []);
        }
        for other in [0, ONLY_BELOW] {
            for below in [ON_FILES, ON_FILES | ON_DIRECTORIES] {
                assert_eq!(inherited(below | other, &creator, false), [(0, owner.clone())]);
            }
            assert_eq!(inherited(ON_DIRECTORIES | other, &creator, false), []);
            assert_eq!(
                inherited(ON_FILES | other, &creator, true),
                [(ON_FILES | ONLY_BELOW, creator.clone())]
            );
            assert_eq!(inherited(ON_FILES | ONCE | other, &creator, true), []);
            for below in [ON_DIRECTORIES, ON_DIRECTORIES | ON_FILES] {
                let both = [(0, owner.clone()), (below | ONLY_BELOW, creator.clone())];
                assert_eq!(inherited(below | other, &creator, true), both);
                assert_eq!(inherited(below | ONCE | other, &creator, true), [(0, owner.clone())]);
                let user = Sid::user(9);
                assert_eq!(inherited(below | other, &user, true), [(below, user)]);
            }
        }
    }

    #[test]
    fn generic_rights_are_replaced_where_they_count() {
        let all = |flags| AccessControlEntry {
            flags,
            ..AccessControlEntry::allowed(0x1000_0000, &Sid::everyone())
        };
        let list = AccessControlList::of(vec![all(ON_FILES), all(ON_FILES | ONLY_BELOW)]).specific();
        let masks: Vec<u32> = list.entries.iter().map(|entry| entry.parts().unwrap().0).collect();
        assert_eq!(masks, [0x1f_01ff, 0x1000_0000]);
    }
}
