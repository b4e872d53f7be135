//! Rights: what an access mask asks for, and what POSIX grants (MS-DTYP §2.4.3, MS-FSA
//! §2.1.5.1.2.1).

use crate::StoreError;
use lease::caching::AccessMask;

pub(crate) const READ_DATA: u32 = 0x1;
pub(crate) const WRITE_DATA: u32 = 0x2;
pub(crate) const APPEND_DATA: u32 = 0x4;
pub(crate) const READ_EA: u32 = 0x8;
pub(crate) const WRITE_EA: u32 = 0x10;
pub(crate) const EXECUTE: u32 = 0x20;
pub(crate) const DELETE_CHILD: u32 = 0x40;
pub(crate) const READ_ATTRIBUTES: u32 = 0x80;
pub(crate) const WRITE_ATTRIBUTES: u32 = 0x100;
pub(crate) const DELETE: u32 = 0x1_0000;
pub(crate) const READ_CONTROL: u32 = 0x2_0000;
pub(crate) const WRITE_DAC: u32 = 0x4_0000;
pub(crate) const WRITE_OWNER: u32 = 0x8_0000;
pub(crate) const SYNCHRONIZE: u32 = 0x10_0000;
pub(crate) const ALL: u32 = 0x1F_01FF;
pub(crate) const SYSTEM_SECURITY: u32 = 0x0100_0000;
const MAXIMUM_ALLOWED: u32 = 0x0200_0000;

/// The rights to read a file, and what is said of it.
pub(crate) const READABLE: u32 = READ_DATA | READ_EA | READ_ATTRIBUTES | READ_CONTROL;
/// The rights by which anything changes.
pub(crate) const CHANGES: u32 =
    WRITE_DATA | APPEND_DATA | WRITE_EA | DELETE_CHILD | WRITE_ATTRIBUTES | DELETE | WRITE_DAC | WRITE_OWNER;

const GENERIC: [(u32, u32); 4] = [
    (0x8000_0000, READ_DATA | READ_EA | READ_ATTRIBUTES | READ_CONTROL | SYNCHRONIZE),
    (0x4000_0000, WRITE_DATA | APPEND_DATA | WRITE_EA | WRITE_ATTRIBUTES | READ_CONTROL | SYNCHRONIZE),
    (0x2000_0000, EXECUTE | READ_ATTRIBUTES | READ_CONTROL | SYNCHRONIZE),
    (0x1000_0000, ALL),
];

/// The acts that a user may do to a file, as POSIX has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Permitted {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) execute: bool,
    /// The user is the owner, or counts as one.
    pub(crate) owns: bool,
    /// The user may remove the name.
    pub(crate) delete: bool,
    pub(crate) is_directory: bool,
    /// Nothing may be changed through the share.
    pub(crate) read_only: bool,
}

impl Permitted {
    /// The rights that this comes to.
    pub(crate) fn rights(self) -> AccessMask {
        let Permitted { read, write, execute, owns, delete, is_directory, read_only } = self;
        let of = |is: bool, rights: u32| if is { rights } else { 0 };
        let rights = READ_ATTRIBUTES
            | READ_CONTROL
            | SYNCHRONIZE
            | of(read, READ_DATA | READ_EA)
            // On a file DELETE_CHILD means nothing, and all rights of it have it.
            | of(write, WRITE_DATA | APPEND_DATA | WRITE_EA | WRITE_ATTRIBUTES | DELETE_CHILD)
            // A program of Windows needs no execute bit. A reader can run a copy.
            | of(execute || read && !is_directory, EXECUTE)
            | of(owns, WRITE_ATTRIBUTES | WRITE_DAC | WRITE_OWNER)
            | of(delete, DELETE);
        AccessMask(if read_only { rights & !CHANGES } else { rights })
    }
}

/// Replaces generic rights by those that they stand for. Returns whether the mask asks for whatever
/// is allowed, too.
pub(crate) fn specific(asked: AccessMask) -> (u32, bool) {
    (without_generic(asked.0 & !MAXIMUM_ALLOWED), asked.0 & MAXIMUM_ALLOWED != 0)
}

/// Replaces generic rights by those that they stand for.
pub(crate) fn without_generic(mask: u32) -> u32 {
    let standing = GENERIC.into_iter().filter(|(generic, _)| mask & generic != 0);
    standing.fold(mask & !0xF000_0000, |rights, (_, stands_for)| rights | stands_for)
}

/// Returns the rights that an open gets of those that the user may have at most (MS-DTYP
/// §2.5.3.2). SeSecurityPrivilege is nobody's.
pub(crate) fn granted(asked: AccessMask, maximal: AccessMask) -> Result<AccessMask, StoreError> {
    let (rights, at_most) = specific(asked);
    if rights & SYSTEM_SECURITY != 0 {
        return Err(StoreError::PrivilegeNotHeld);
    }
    if rights & !maximal.0 != 0 {
        return Err(StoreError::AccessDenied);
    }
    Ok(AccessMask(if at_most { rights | maximal.0 } else { rights }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn generic_rights_are_replaced() {
        let everything = Permitted {
            read: true,
            write: true,
            execute: true,
            owns: true,
            delete: true,
            ..Permitted::default()
        };
        let maximal = everything.rights();
        assert_eq!(maximal.0, ALL);
        assert_eq!(granted(AccessMask(0x8000_0000), maximal), Ok(AccessMask(0x12_0089)));
        assert_eq!(granted(AccessMask(0x4000_0000), maximal), Ok(AccessMask(0x12_0116)));
        assert_eq!(granted(AccessMask(MAXIMUM_ALLOWED), maximal), Ok(maximal));
        assert_eq!(granted(AccessMask(SYSTEM_SECURITY), maximal), Err(StoreError::PrivilegeNotHeld));
    }

    proptest! {
        #[test]
        fn nobody_gets_more_than_is_allowed(asked in any::<u32>(), maximal in any::<u32>()) {
            if let Ok(granted) = granted(AccessMask(asked), AccessMask(maximal & ALL)) {
                prop_assert_eq!(granted.0 & !maximal, 0);
            }
        }

        #[test]
        fn a_read_only_share_lets_nothing_change(read: bool, write: bool, owns: bool, delete: bool) {
            let permitted = Permitted { read, write, owns, delete, read_only: true, ..Permitted::default() };
            prop_assert_eq!(permitted.rights().0 & CHANGES, 0);
        }
    }
}
