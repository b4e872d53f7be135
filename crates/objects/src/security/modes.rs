//! Descriptors and modes of POSIX: what a mode says as a descriptor, and the mode that comes
//! closest to a descriptor.

use super::list::{AccessControlEntry, AccessControlList};
use super::{DACL_PRESENT, SecurityDescriptor, Sid, UserSids};
use crate::rights::{ALL, APPEND_DATA, EXECUTE, READ_DATA, WRITE_DATA};
use namespace::Attributes;

/// Rights of a mode's bits, for a file or directory.
const READS: u32 = 0x12_0089;
const WRITES: u32 = 0x12_0116;
const EXECUTES: u32 = 0x12_00a0;
/// WRITE_DAC, WRITE_OWNER, WRITE_ATTRIBUTES, which an owner has, and DELETE.
const OWNS: u32 = 0xd_0100;

/// The bits of a class of users with these rights. A bit stands for all of its rights.
fn bits(rights: u32) -> u16 {
    let parts = [(READ_DATA, 4), (WRITE_DATA | APPEND_DATA, 2), (EXECUTE, 1)];
    parts.into_iter().filter(|(part, _)| rights & part == *part).map(|(_, bit)| bit).sum()
}

impl SecurityDescriptor {
    /// The descriptor that says what the mode and the owners of a file say.
    pub(crate) fn of_mode(attributes: &Attributes) -> SecurityDescriptor {
        let (owner, group) = (Sid::user(attributes.uid), Sid::group(attributes.gid));
        let rights = |bits: u16, own: u32| {
            let parts = [(4, READS), (2, WRITES), (1, EXECUTES)];
            match bits & 7 {
                7 if own != 0 => ALL,
                bits => parts
                    .into_iter()
                    .filter(|(bit, _)| bits & bit != 0)
                    .fold(own, |sum, (_, part)| sum | part),
            }
        };
        let mode = attributes.mode;
        let dacl = AccessControlList::of(vec![
            AccessControlEntry::allowed(rights(mode >> 6, OWNS), &owner),
            AccessControlEntry::allowed(rights(mode >> 3, 0), &group),
            AccessControlEntry::allowed(rights(mode, 0), &Sid::everyone()),
        ]);
        SecurityDescriptor {
            control: DACL_PRESENT,
            owner: Some(owner),
            group: Some(group),
            sacl: None,
            dacl: Some(dacl),
        }
    }

    /// The mode that says all of it, if there is one, for a file of these owners.
    pub(crate) fn exact_mode(&self, attributes: &Attributes) -> Option<u16> {
        let masks = self.dacl.as_ref()?.entries.iter().map(AccessControlEntry::effective);
        let masks = masks.collect::<Option<Vec<_>>>()?;
        let mode = masks.iter().take(3).fold(0, |mode, (_, mask, _)| mode << 3 | bits(*mask));
        let mode = attributes.mode & !0o777 | mode;
        (*self == SecurityDescriptor::of_mode(&Attributes { mode, ..*attributes })).then_some(mode)
    }

    /// The mode that comes closest: what the owner, the group and all others have.
    pub(crate) fn near_mode(&self, attributes: &Attributes) -> u16 {
        let classes = [self.owner.as_ref(), self.group.as_ref(), None];
        let mode =
            classes.into_iter().fold(0, |mode, sid| mode << 3 | bits(self.rights(&UserSids::alone(sid))));
        attributes.mode & !0o777 | mode
    }
}

#[cfg(test)]
mod tests {
    use super::super::owned as attributes;
    use super::*;

    #[test]
    fn each_mode_is_a_descriptor_and_comes_back() {
        for mode in 0..0o1000 {
            let file = attributes(0o4000 | mode, 7, 8);
            let descriptor = SecurityDescriptor::of_mode(&file);
            assert_eq!(descriptor.exact_mode(&attributes(0o4000, 7, 8)), Some(0o4000 | mode), "{mode:o}");
            assert_eq!(descriptor.exact_mode(&attributes(0o4000, 9, 8)), None, "another owner");
        }
    }

    #[test]
    fn the_nearest_mode_gives_each_class_no_more_than_the_list() {
        let mut descriptor = SecurityDescriptor::of_mode(&attributes(0o640, 7, 8));
        assert_eq!(descriptor.near_mode(&attributes(0, 7, 8)), 0o640);
        let list = vec![AccessControlEntry::allowed(WRITE_DATA | READ_DATA, &Sid::user(7))];
        descriptor.dacl = Some(AccessControlList::of(list));
        assert_eq!(descriptor.exact_mode(&attributes(0, 7, 8)), None);
        assert_eq!(descriptor.near_mode(&attributes(0, 7, 8)), 0o400, "it may not append");
        descriptor.dacl = None;
        assert_eq!(descriptor.near_mode(&attributes(0, 7, 8)), 0o777);
    }
}
