//! Security descriptors (MS-DTYP §2.4.6). The mode of a file is what counts; a descriptor that a
//! client has stored is kept beside.

use super::posix_sid;
use crate::wire::{Malformed, Reader, Writer};
use objects::Info;

/// SE_SELF_RELATIVE, SE_DACL_PRESENT, SE_SACL_PRESENT.
const SELF_RELATIVE: u16 = 0x8000;
const DACL_PRESENT: u16 = 0x4;
const SACL_PRESENT: u16 = 0x10;
/// The bits that stay as a client has set them, for both lists.
const KEPT: u16 = 0x3f00 | 0x8 | 0x20;

/// Rights of a mode's bits, for a file or directory.
const READ: u32 = 0x12_0089;
const WRITE: u32 = 0x12_0116;
const EXECUTE: u32 = 0x12_00a0;
const ALL: u32 = 0x1f_01ff;
/// WRITE_DAC, WRITE_OWNER, WRITE_ATTRIBUTES, which an owner has, and DELETE.
const OWNER: u32 = 0xd_0100;

/// A part of a descriptor: the bits of AdditionalInformation (MS-SMB2 §2.2.37).
pub(crate) struct Part;

impl Part {
    pub(crate) const OWNER: u32 = 1;
    pub(crate) const GROUP: u32 = 2;
    pub(crate) const DACL: u32 = 4;
    pub(crate) const SACL: u32 = 8;
}

/// A descriptor, its parts in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SecurityDescriptor {
    control: u16,
    owner: Option<Vec<u8>>,
    group: Option<Vec<u8>>,
    sacl: Option<Vec<u8>>,
    dacl: Option<Vec<u8>>,
}

impl SecurityDescriptor {
    /// Parses a descriptor in the self-relative form.
    pub(crate) fn parse(bytes: &[u8]) -> Result<SecurityDescriptor, Malformed> {
        let mut reader = Reader::new(bytes);
        reader.u16()?;
        let control = reader.u16()?;
        let mut offsets = [0; 4];
        for offset in &mut offsets {
            *offset = reader.u32()? as usize;
        }
        let sid = |at: usize| {
            if at == 0 {
                return Ok(None);
            }
            let mut reader = Reader::at(bytes, at);
            let (revision, count) = (reader.u8()?, reader.u8()?);
            if revision != 1 || count > 15 {
                return Err(Malformed("an identifier in a descriptor is odd"));
            }
            Ok(Some(Reader::at(bytes, at).take(8 + 4 * usize::from(count))?.to_vec()))
        };
        let list = |at: usize| {
            if at == 0 {
                return Ok(None);
            }
            let mut reader = Reader::at(bytes, at);
            reader.u16()?;
            let size = usize::from(reader.u16()?);
            if size < 8 {
                return Err(Malformed("a list in a descriptor is odd"));
            }
            Ok(Some(Reader::at(bytes, at).take(size)?.to_vec()))
        };
        Ok(SecurityDescriptor {
            control,
            owner: sid(offsets[0])?,
            group: sid(offsets[1])?,
            sacl: list(offsets[2])?,
            dacl: list(offsets[3])?,
        })
    }

    /// Returns the descriptor that says what the mode says.
    pub(crate) fn of_mode(info: &Info) -> SecurityDescriptor {
        let (owner, group) = (posix_sid(1, info.posix.uid), posix_sid(2, info.posix.gid));
        let everyone = vec![1, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        let rights = |bits: u32, own: u32| {
            let parts = [(4, READ), (2, WRITE), (1, EXECUTE)];
            match bits & 7 {
                7 if own != 0 => ALL,
                bits => parts
                    .into_iter()
                    .filter(|(bit, _)| bits & bit != 0)
                    .fold(own, |sum, (_, part)| sum | part),
            }
        };
        let mode = info.posix.mode;
        let entries = [
            (&owner, rights(mode >> 6, OWNER)),
            (&group, rights(mode >> 3, 0)),
            (&everyone, rights(mode, 0)),
        ];
        let mut list = Vec::new();
        for (sid, mask) in entries {
            // ACCESS_ALLOWED_ACE.
            list.u16(0);
            list.u16(8 + sid.len() as u16);
            list.u32(mask);
            list.put(sid);
        }
        let mut dacl = Vec::new();
        dacl.u16(2);
        dacl.u16(8 + list.len() as u16);
        dacl.u32(entries.len() as u32);
        dacl.put(&list);
        SecurityDescriptor {
            control: SELF_RELATIVE | DACL_PRESENT,
            owner: Some(owner),
            group: Some(group),
            sacl: None,
            dacl: Some(dacl),
        }
    }

    /// Takes over parts of another.
    pub(crate) fn replace(&mut self, parts: u32, other: SecurityDescriptor) {
        self.control = (self.control & !KEPT) | (other.control & KEPT);
        if parts & Part::OWNER != 0 {
            self.owner = other.owner;
        }
        if parts & Part::GROUP != 0 {
            self.group = other.group;
        }
        if parts & Part::DACL != 0 {
            self.dacl = other.dacl;
            self.control = self.control & !DACL_PRESENT | other.control & DACL_PRESENT;
        }
        if parts & Part::SACL != 0 {
            self.sacl = other.sacl;
            self.control = self.control & !SACL_PRESENT | other.control & SACL_PRESENT;
        }
    }

    /// Returns the descriptor with these parts alone.
    pub(crate) fn to_bytes(&self, parts: u32) -> Vec<u8> {
        let has = |part: u32, content: &Option<Vec<u8>>| content.clone().filter(|_| parts & part != 0);
        let all = [
            has(Part::OWNER, &self.owner),
            has(Part::GROUP, &self.group),
            has(Part::SACL, &self.sacl),
            has(Part::DACL, &self.dacl),
        ];
        let mut control = self.control & KEPT | SELF_RELATIVE;
        for (part, bit) in [(Part::DACL, DACL_PRESENT), (Part::SACL, SACL_PRESENT)] {
            if parts & part != 0 {
                control |= self.control & bit;
            }
        }
        let mut out = vec![1, 0];
        out.u16(control);
        let mut at = 20;
        for part in &all {
            out.u32(if part.is_some() { at } else { 0 });
            at += part.as_ref().map_or(0, |part| part.len() as u32);
        }
        all.into_iter().flatten().for_each(|part| out.put(&part));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
