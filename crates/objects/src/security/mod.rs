//! Security descriptors (MS-DTYP §2.4.6): their form, and the rights that they give.

pub(crate) mod kept;
mod list;
mod modes;
mod sid;

pub(crate) use sid::{Sid, UserSids};

use crate::StoreError;
use crate::rights::{ALL, READ_CONTROL, WRITE_DAC};
use list::AccessControlList;

/// SE_DACL_PRESENT and others.
const DACL_PRESENT: u16 = 0x4;
const DACL_DEFAULTED: u16 = 0x8;
const SACL_PRESENT: u16 = 0x10;
const DACL_AUTO_INHERIT_REQUEST: u16 = 0x100;
const DACL_AUTO_INHERITED: u16 = 0x400;
const DACL_PROTECTED: u16 = 0x1000;
const SACL_FLAGS: u16 = 0x20 | 0x800 | 0x2000;
const SELF_RELATIVE: u16 = 0x8000;

/// A security descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecurityDescriptor {
    control: u16,
    owner: Option<Sid>,
    group: Option<Sid>,
    sacl: Option<AccessControlList>,
    /// With DACL_PRESENT and no list everybody has all rights.
    dacl: Option<AccessControlList>,
}

impl SecurityDescriptor {
    /// The parts of a descriptor: the bits of AdditionalInformation (MS-SMB2 §2.2.37).
    pub const OWNER: u32 = 1;
    /// The group.
    pub const GROUP: u32 = 2;
    /// The list that says who may do what.
    pub const DACL: u32 = 4;
    /// The list that says what is noted.
    pub const SACL: u32 = 8;

    /// Reads a descriptor in the self-relative form.
    pub fn parse(bytes: &[u8]) -> Result<SecurityDescriptor, StoreError> {
        SecurityDescriptor::read(bytes).ok_or(StoreError::Invalid)
    }

    fn read(bytes: &[u8]) -> Option<SecurityDescriptor> {
        let control = u16::from_le_bytes(bytes.get(2..4)?.try_into().ok()?);
        let part = |at: usize| {
            let offset = u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize;
            bytes.get(offset..).map(|part| (offset != 0).then_some(part))
        };
        let sid = |at: usize| part(at)?.map_or(Some(None), |part| Sid::parse(part).map(Some));
        let list = |at: usize| part(at)?.map_or(Some(None), |part| AccessControlList::parse(part).map(Some));
        Some(SecurityDescriptor {
            control: control & !SELF_RELATIVE,
            owner: sid(4)?,
            group: sid(8)?,
            sacl: list(12)?,
            dacl: list(16)?,
        })
    }

    /// The descriptor with these parts alone, in the self-relative form.
    pub fn to_bytes(&self, parts: u32) -> Vec<u8> {
        let sid = |part: u32, sid: &Option<Sid>| sid.clone().filter(|_| parts & part != 0).map(|sid| sid.0);
        let list = |part: u32, list: &Option<AccessControlList>| {
            list.as_ref().filter(|_| parts & part != 0).map(AccessControlList::to_bytes)
        };
        let all = [
            sid(SecurityDescriptor::OWNER, &self.owner),
            sid(SecurityDescriptor::GROUP, &self.group),
            list(SecurityDescriptor::SACL, &self.sacl),
            list(SecurityDescriptor::DACL, &self.dacl),
        ];
        let mut out = vec![1, 0];
        out.extend((self.control & control_of(parts) | SELF_RELATIVE).to_le_bytes());
        let mut at = 20u32;
        for part in &all {
            out.extend(part.as_ref().map_or(0, |_| at).to_le_bytes());
            at += part.as_ref().map_or(0, |part| part.len() as u32);
        }
        out.extend(all.into_iter().flatten().flatten());
        out
    }

    /// The parts that it has.
    pub fn parts(&self) -> u32 {
        let of = |has: bool, part: u32| if has { part } else { 0 };
        of(self.owner.is_some(), SecurityDescriptor::OWNER)
            | of(self.group.is_some(), SecurityDescriptor::GROUP)
            | of(self.control & DACL_PRESENT != 0, SecurityDescriptor::DACL)
            | of(self.control & SACL_PRESENT != 0, SecurityDescriptor::SACL)
    }

    /// Takes over parts of another, as a client sets them.
    pub(crate) fn replace(&mut self, parts: u32, mut other: SecurityDescriptor) {
        // Inheritance is noted only for a client that asks for it, and the question is not kept.
        if other.control & DACL_AUTO_INHERIT_REQUEST == 0 {
            other.control &= !DACL_AUTO_INHERITED;
        }
        let control = control_of(parts);
        self.control = self.control & !control | other.control & control;
        if parts & SecurityDescriptor::OWNER != 0 {
            self.owner = other.owner;
        }
        if parts & SecurityDescriptor::GROUP != 0 {
            self.group = other.group;
        }
        if parts & SecurityDescriptor::DACL != 0 {
            // Without a list everybody has all rights.
            self.control |= DACL_PRESENT;
            self.dacl = other.dacl.map(AccessControlList::specific);
        }
        if parts & SecurityDescriptor::SACL != 0 {
            self.sacl = other.sacl;
        }
    }

    pub(crate) fn owner(&self) -> Option<&Sid> {
        self.owner.as_ref()
    }

    pub(crate) fn group(&self) -> Option<&Sid> {
        self.group.as_ref()
    }

    /// The rights that a user has at most (MS-DTYP §2.5.3.2): of the entries that concern a right,
    /// the first decides.
    pub(crate) fn rights(&self, token: &UserSids) -> u32 {
        let Some(dacl) = self.dacl.as_ref().filter(|_| self.control & DACL_PRESENT != 0) else { return ALL };
        let owns = self.owner.as_ref().is_some_and(|owner| token.has(owner));
        let (owner_rights, mut granted, mut denied) = (Sid::owner_rights(), 0, 0);
        let effective = || dacl.entries.iter().filter_map(|entry| entry.effective());
        if owns && !effective().any(|(_, _, sid)| sid == owner_rights) {
            granted = READ_CONTROL | WRITE_DAC;
        }
        for (allows, mask, sid) in effective() {
            if !(token.has(&sid) || owns && sid == owner_rights) {
                continue;
            }
            if allows {
                granted |= mask & !denied;
            } else {
                denied |= mask & !granted;
            }
        }
        granted & ALL
    }

    /// The descriptor of a new object below one with this descriptor, if anything goes down.
    pub(crate) fn inherited(&self, is_directory: bool, owner: Sid, group: Sid) -> Option<SecurityDescriptor> {
        let noted = self.control & DACL_AUTO_INHERITED;
        let dacl = self.dacl.as_ref()?.inherited(is_directory, (&owner, &group), noted != 0)?;
        Some(SecurityDescriptor {
            control: DACL_PRESENT | noted,
            owner: Some(owner),
            group: Some(group),
            sacl: None,
            dacl: Some(dacl),
        })
    }
}

/// The bits of control that belong to parts.
fn control_of(parts: u32) -> u16 {
    let of = |part: u32, bits: u16| if parts & part != 0 { bits } else { 0 };
    let dacl = DACL_PRESENT | DACL_DEFAULTED | DACL_AUTO_INHERITED | DACL_PROTECTED;
    of(SecurityDescriptor::DACL, dacl) | of(SecurityDescriptor::SACL, SACL_PRESENT | SACL_FLAGS)
}

/// The attributes of a file with this mode and these owners.
#[cfg(test)]
fn owned(mode: u16, uid: u32, gid: u32) -> namespace::Attributes {
    let never = namespace::Timestamp { secs: 0, nanos: 0 };
    namespace::Attributes {
        kind: namespace::FileKind::Regular,
        mode,
        uid,
        gid,
        links: 1,
        ino: 1,
        rdev: 0,
        ctime: never,
        btime: never,
        atime: never,
    }
}

#[cfg(test)]
mod tests {
    use super::list::AccessControlEntry;
    use super::*;
    use proptest::prelude::*;

    const READ: u32 = 0x12_0089;
    const WRITE_DATA: u32 = 2;
    const READ_DATA: u32 = 1;

    fn denied(mask: u32, sid: &Sid) -> AccessControlEntry {
        let bytes = AccessControlList::of(vec![AccessControlEntry::allowed(mask, sid)]).to_bytes();
        let mut bytes = bytes;
        bytes[8] = 1;
        AccessControlList::parse(&bytes).unwrap().entries.remove(0)
    }

    fn rights(entries: Vec<AccessControlEntry>, who: u32) -> u32 {
        let descriptor = SecurityDescriptor {
            control: DACL_PRESENT,
            owner: Some(Sid::user(1)),
            dacl: Some(AccessControlList::of(entries)),
            ..SecurityDescriptor::default()
        };
        let who = namespace::Cred { uid: who, gid: 100, ..namespace::Cred::default() };
        descriptor.rights(&UserSids::of(&who))
    }

    #[test]
    fn the_first_entry_that_concerns_a_right_decides() {
        let (owner, all) = (Sid::user(1), Sid::everyone());
        let keeps = READ_CONTROL | WRITE_DAC;
        assert_eq!(rights(vec![], 1), keeps);
        assert_eq!(rights(vec![], 2), 0);
        let allows_first =
            vec![AccessControlEntry::allowed(READ | WRITE_DATA, &owner), denied(WRITE_DATA, &owner)];
        assert_eq!(rights(allows_first, 1), READ | WRITE_DATA | keeps);
        let denies_first = || {
            vec![denied(WRITE_DATA, &Sid::group(100)), AccessControlEntry::allowed(READ | WRITE_DATA, &all)]
        };
        assert_eq!(rights(denies_first(), 2), READ);
        // An entry for the owner's rights takes those that he has anyway.
        let limited = vec![
            AccessControlEntry::allowed(READ, &owner),
            AccessControlEntry::allowed(WRITE_DATA, &Sid::owner_rights()),
        ];
        assert_eq!(rights(limited.clone(), 1), READ | WRITE_DATA);
        assert_eq!(rights(limited, 2), 0);
        let limited =
            vec![denied(READ_DATA, &Sid::owner_rights()), AccessControlEntry::allowed(READ, &owner)];
        assert_eq!(rights(limited, 1), READ & !READ_DATA);
        assert_eq!(rights(vec![AccessControlEntry::allowed(ALL, &Sid::creator_owner())], 1), keeps);
        assert_eq!(SecurityDescriptor::default().rights(&UserSids::alone(None)), ALL, "no list");
    }

    #[test]
    fn a_descriptor_takes_over_the_parts_that_are_set() {
        let list =
            |sid: &Sid| Some(AccessControlList::of(vec![AccessControlEntry::allowed(0x8000_0000, sid)]));
        let mut whole = SecurityDescriptor {
            control: DACL_PRESENT | DACL_PROTECTED,
            owner: Some(Sid::user(1)),
            dacl: list(&Sid::user(1)),
            ..SecurityDescriptor::default()
        };
        let owner = SecurityDescriptor { owner: Some(Sid::user(2)), ..SecurityDescriptor::default() };
        whole.replace(SecurityDescriptor::OWNER, owner);
        assert_eq!((whole.control, whole.owner()), (DACL_PRESENT | DACL_PROTECTED, Some(&Sid::user(2))));
        for (control, kept) in [
            (DACL_AUTO_INHERITED, 0),
            (DACL_AUTO_INHERIT_REQUEST, 0),
            (DACL_AUTO_INHERITED | DACL_AUTO_INHERIT_REQUEST, DACL_AUTO_INHERITED),
            (DACL_PROTECTED, DACL_PROTECTED),
        ] {
            let dacl = list(&Sid::everyone());
            let other =
                SecurityDescriptor { control: control | DACL_PRESENT, dacl, ..SecurityDescriptor::default() };
            whole.replace(SecurityDescriptor::DACL, other);
            assert_eq!(whole.control, DACL_PRESENT | kept);
        }
        assert_eq!(
            whole.dacl,
            Some(AccessControlList::of(vec![AccessControlEntry::allowed(READ, &Sid::everyone())]))
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_descriptor_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(descriptor) = SecurityDescriptor::parse(&bytes) {
                let all = descriptor.to_bytes(15);
                let again = SecurityDescriptor::parse(&all).unwrap();
                prop_assert_eq!(again.to_bytes(15), all);
            }
        }
    }
}
