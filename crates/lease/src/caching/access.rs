//! Rights and sharing of an open, as far as caching leases look at them.

use crate::{Mode, OpenModes};

/// The rights that an open has been granted: an access mask (MS-SMB2 §2.2.13.1). The caller has
/// replaced generic rights and MAXIMUM_ALLOWED by those that they stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AccessMask(pub u32);

impl AccessMask {
    /// FILE_READ_DATA.
    pub const READ_DATA: AccessMask = AccessMask(0x1);
    /// FILE_WRITE_DATA.
    pub const WRITE_DATA: AccessMask = AccessMask(0x2);
    /// FILE_APPEND_DATA.
    pub const APPEND_DATA: AccessMask = AccessMask(0x4);
    /// FILE_EXECUTE.
    pub const EXECUTE: AccessMask = AccessMask(0x20);
    /// FILE_READ_ATTRIBUTES.
    pub const READ_ATTRIBUTES: AccessMask = AccessMask(0x80);
    /// FILE_WRITE_ATTRIBUTES.
    pub const WRITE_ATTRIBUTES: AccessMask = AccessMask(0x100);
    /// DELETE.
    pub const DELETE: AccessMask = AccessMask(0x1_0000);
    /// READ_CONTROL.
    pub const READ_CONTROL: AccessMask = AccessMask(0x2_0000);
    /// SYNCHRONIZE.
    pub const SYNCHRONIZE: AccessMask = AccessMask(0x10_0000);
    const STAT: AccessMask =
        AccessMask::READ_ATTRIBUTES.or(AccessMask::WRITE_ATTRIBUTES).or(AccessMask::SYNCHRONIZE);

    /// Returns the rights of both.
    pub const fn or(self, other: AccessMask) -> AccessMask {
        AccessMask(self.0 | other.0)
    }

    const fn meets(self, rights: AccessMask) -> bool {
        self.0 & rights.0 != 0
    }

    /// Returns whether these rights alone make a *stat open*, which breaks no lease and stands in
    /// nobody's way.
    ///
    /// READ_CONTROL is among them. This departs from MS-SMB2 §3.3.1.4: because Windows, Samba and
    /// the conformance tests (`statopen4`) take such an open for a stat open.
    pub const fn is_stat(self) -> bool {
        self.0 & !AccessMask::STAT.or(AccessMask::READ_CONTROL).0 == 0
    }

    /// Returns whether these rights alone break no legacy oplock. READ_CONTROL does (`statopen1` of
    /// the conformance tests).
    pub const fn is_stat_to_oplocks(self) -> bool {
        self.0 & !AccessMask::STAT.0 == 0
    }

    /// Returns the modes of a handle with these rights. A handle that neither reads nor writes nor
    /// deletes excludes nobody, whatever its sharing says.
    pub fn modes(self, sharing: Sharing) -> OpenModes {
        let rights = [
            (AccessMask::READ_DATA.or(AccessMask::EXECUTE), Mode::AccessRead),
            (AccessMask::WRITE_DATA.or(AccessMask::APPEND_DATA), Mode::AccessWrite),
            (AccessMask::DELETE, Mode::AccessDelete),
        ];
        let access =
            OpenModes::with(rights.into_iter().filter(|(r, _)| self.meets(*r)).map(|(_, mode)| mode));
        if access.modes().next().is_none() {
            return access;
        }
        let sharings = [
            (Sharing::READ, Mode::ExcludeRead),
            (Sharing::WRITE, Mode::ExcludeWrite),
            (Sharing::DELETE, Mode::ExcludeDelete),
        ];
        let excluded = sharings.into_iter().filter(|(shared, _)| sharing.0 & shared.0 == 0);
        access.or(OpenModes::with(excluded.map(|(_, mode)| mode)))
    }
}

/// The acts that an open lets others do meanwhile: ShareAccess (MS-SMB2 §2.2.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sharing(pub u32);

impl Sharing {
    /// FILE_SHARE_READ.
    pub const READ: Sharing = Sharing(0x1);
    /// FILE_SHARE_WRITE.
    pub const WRITE: Sharing = Sharing(0x2);
    /// FILE_SHARE_DELETE.
    pub const DELETE: Sharing = Sharing(0x4);
    /// All three, as every POSIX handle shares.
    pub const ALL: Sharing = Sharing(0x7);
}

/// Returns whether two handles exclude each other: one accesses in a way that the other does not
/// share.
pub(super) fn conflict(one: OpenModes, other: OpenModes) -> bool {
    one.modes().any(|mode| other.has_mode(mode.against()))
}
