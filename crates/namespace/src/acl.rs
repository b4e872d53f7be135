//! POSIX access control lists (POSIX.1e draft 17, as Linux has them).
//!
//! They are stored as the extended attributes [`ACCESS`] and [`DEFAULT`], in the kernel's own
//! format, all little-endian. A list is a version (u32, 2), then its entries. Each entry has a tag
//! (u16), permissions (u16) and a user or group (u32, all ones where the tag needs none).

use crate::{Attributes, Cred};
use lease::Label;
use smallvec::SmallVec;
use std::sync::LazyLock;

/// Name of the list that governs access to the file. It is stored only if it says more than the
/// mode's bits do.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the list that new files in a directory begin with.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

/// [`ACCESS`] as a label.
pub(crate) static ACCESS_LABEL: LazyLock<Label> = LazyLock::new(|| constant_label(ACCESS));
/// [`DEFAULT`] as a label.
pub(crate) static DEFAULT_LABEL: LazyLock<Label> = LazyLock::new(|| constant_label(DEFAULT));

#[allow(clippy::expect_used, reason = "the two constants above are short and hold no zero byte")]
pub(crate) fn constant_label(name: &[u8]) -> Label {
    Label::attribute(name).expect("a constant that is a label")
}

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
const NO_ID: u32 = u32::MAX;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// These bytes are no valid access control list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotAnAcl;

/// A valid list: entries in the order owner, users, group, groups, mask, others, with a mask if any
/// user or group is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl(SmallVec<[AclEntry; 6]>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AclEntry {
    tag: u16,
    perm: u16,
    id: u32,
}

impl Acl {
    /// Parses and checks a list. A list without entries is `setfacl`'s way to say "none".
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Acl>, NotAnAcl> {
        let (version, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(NotAnAcl)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(NotAnAcl);
        }
        let (chunks, []) = rest.as_chunks::<ENTRY_BYTES>() else { return Err(NotAnAcl) };
        if chunks.is_empty() {
            return Ok(None);
        }
        let acl = Acl(chunks.iter().map(AclEntry::parse).collect());
        if acl.is_valid() { Ok(Some(acl)) } else { Err(NotAnAcl) }
    }

    /// Its stored form.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + ENTRY_BYTES * self.0.len());
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        for entry in &self.0 {
            bytes.extend_from_slice(&entry.tag.to_le_bytes());
            bytes.extend_from_slice(&entry.perm.to_le_bytes());
            bytes.extend_from_slice(&entry.id.to_le_bytes());
        }
        bytes
    }

    /// Whether the list is valid: Linux' `posix_acl_valid`.
    fn is_valid(&self) -> bool {
        // The least tag that may follow. Tags are numbered in their required order.
        let mut least = USER_OBJ;
        let mut named = false;
        for entry in &self.0 {
            let required_before = match entry.tag {
                USER_OBJ => least == USER_OBJ,
                USER | GROUP_OBJ => least == USER,
                GROUP | MASK => least == GROUP,
                OTHER => least == OTHER || (least == GROUP && !named),
                _ => false,
            };
            let is_named = matches!(entry.tag, USER | GROUP);
            if !required_before || entry.perm > 7 || (is_named && entry.id == NO_ID) {
                return false;
            }
            named |= is_named;
            least = match entry.tag {
                USER_OBJ | USER => USER,
                GROUP_OBJ | GROUP => GROUP,
                MASK => OTHER,
                _ => OTHER << 1,
            };
        }
        least == OTHER << 1
    }

    /// Whether `cred` may do all of `wanted` (bits 4, 2, 1) to a file of this owner and group:
    /// Linux' `posix_acl_permission`.
    pub(crate) fn permits(&self, attributes: &Attributes, cred: &Cred, wanted: u16) -> bool {
        let mask = self.find(MASK).map_or(7, |entry| entry.perm);
        let mut in_a_group = false;
        for entry in &self.0 {
            let grants = entry.perm & wanted == wanted;
            match entry.tag {
                USER_OBJ if cred.uid == attributes.uid => return grants,
                USER if cred.uid == entry.id => return grants && mask & wanted == wanted,
                GROUP_OBJ | GROUP => {
                    let gid = if entry.tag == GROUP { entry.id } else { attributes.gid };
                    if cred.in_group(gid) {
                        in_a_group = true;
                        if grants {
                            return mask & wanted == wanted;
                        }
                    }
                }
                OTHER => return grants && !in_a_group,
                _ => {}
            }
        }
        false
    }

    /// The nine permission bits of the list. Those of the group are the mask's, if there is a mask.
    pub(crate) fn mode_bits(&self) -> u16 {
        let perm = |tag| self.find(tag).map_or(0, |entry| entry.perm);
        let group = self.find(MASK).map_or_else(|| perm(GROUP_OBJ), |entry| entry.perm);
        perm(USER_OBJ) << 6 | group << 3 | perm(OTHER)
    }

    /// Whether it says more than its mode bits do.
    pub(crate) fn is_extended(&self) -> bool {
        self.0.iter().any(|entry| matches!(entry.tag, USER | GROUP | MASK))
    }

    /// Changes the list as chmod does.
    pub(crate) fn set_mode_bits(&mut self, mode: u16) {
        let class = self.group_class();
        for entry in &mut self.0 {
            match entry.tag {
                USER_OBJ => entry.perm = mode >> 6 & 7,
                OTHER => entry.perm = mode & 7,
                tag if tag == class => entry.perm = mode >> 3 & 7,
                _ => {}
            }
        }
    }

    /// Makes a directory's default list the access list of a file created in it with `mode`.
    /// Returns the mode of the file. As POSIX.1e 23.3.4 has it, each of the two loses what the
    /// other does not grant.
    pub(crate) fn inherit(&mut self, mode: u16) -> u16 {
        let class = self.group_class();
        let mut granted = 0;
        for entry in &mut self.0 {
            let shift = match entry.tag {
                USER_OBJ => 6,
                OTHER => 0,
                tag if tag == class => 3,
                _ => continue,
            };
            entry.perm &= mode >> shift;
            granted |= entry.perm << shift;
        }
        mode & !0o777 | granted
    }

    /// The tag that the group's mode bits stand for.
    fn group_class(&self) -> u16 {
        if self.find(MASK).is_some() { MASK } else { GROUP_OBJ }
    }

    fn find(&self, tag: u16) -> Option<&AclEntry> {
        self.0.iter().find(|entry| entry.tag == tag)
    }
}

impl AclEntry {
    fn parse(bytes: &[u8; ENTRY_BYTES]) -> AclEntry {
        let [t0, t1, p0, p1, i0, i1, i2, i3] = *bytes;
        let tag = u16::from_le_bytes([t0, t1]);
        // The id of an unnamed entry has no meaning, so only one form of it is stored.
        let id = if matches!(tag, USER | GROUP) { u32::from_le_bytes([i0, i1, i2, i3]) } else { NO_ID };
        AclEntry { tag, perm: u16::from_le_bytes([p0, p1]), id }
    }
}

#[cfg(test)]
mod tests;
