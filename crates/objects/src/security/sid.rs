//! Security identifiers (MS-DTYP §2.4.2), and those that a user has.

use namespace::Cred;

/// A security identifier, in its binary form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sid(pub(crate) Vec<u8>);

/// The authority of users and groups of Unix: S-1-22-1 and S-1-22-2.
const UNIX: u8 = 22;
const WORLD: u8 = 1;
const CREATOR: u8 = 3;
const NT: u8 = 5;

impl Sid {
    /// The longest identifier, in bytes.
    pub(crate) const BYTES_MAX: usize = 8 + 4 * 15;

    fn new(authority: u8, parts: &[u32]) -> Sid {
        let mut bytes = vec![1, parts.len() as u8, 0, 0, 0, 0, 0, authority];
        parts.iter().for_each(|part| bytes.extend(part.to_le_bytes()));
        Sid(bytes)
    }

    /// Reads the identifier that the bytes begin with.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Sid> {
        let (revision, count) = (*bytes.first()?, usize::from(*bytes.get(1)?));
        let sid = bytes.get(..8 + 4 * count).filter(|sid| revision == 1 && sid.len() <= Sid::BYTES_MAX)?;
        Some(Sid(sid.to_vec()))
    }

    pub(crate) fn user(uid: u32) -> Sid {
        Sid::new(UNIX, &[1, uid])
    }

    pub(crate) fn group(gid: u32) -> Sid {
        Sid::new(UNIX, &[2, gid])
    }

    /// The user that it stands for.
    pub(crate) fn uid(&self) -> Option<u32> {
        self.number().filter(|number| *self == Sid::user(*number))
    }

    /// The group that it stands for.
    pub(crate) fn gid(&self) -> Option<u32> {
        self.number().filter(|number| *self == Sid::group(*number))
    }

    fn number(&self) -> Option<u32> {
        self.0.get(12..16)?.try_into().ok().map(u32::from_le_bytes)
    }

    /// Everyone (S-1-1-0).
    pub(crate) fn everyone() -> Sid {
        Sid::new(WORLD, &[0])
    }

    /// Authenticated Users (S-1-5-11).
    pub(crate) fn authenticated() -> Sid {
        Sid::new(NT, &[11])
    }

    /// The one that stands for the owner of what inherits it (S-1-3-0).
    pub(crate) fn creator_owner() -> Sid {
        Sid::new(CREATOR, &[0])
    }

    /// The one that stands for the group of what inherits it (S-1-3-1).
    pub(crate) fn creator_group() -> Sid {
        Sid::new(CREATOR, &[1])
    }

    /// The one that stands for the owner, and takes from him what an owner has anyway (S-1-3-4).
    pub(crate) fn owner_rights() -> Sid {
        Sid::new(CREATOR, &[4])
    }
}

/// The identifiers of a user.
pub(crate) struct UserSids(Vec<Sid>);

impl UserSids {
    pub(crate) fn of(who: &Cred) -> UserSids {
        let groups = who.groups.iter().chain([&who.gid]).map(|gid| Sid::group(*gid));
        let mut sids = vec![Sid::user(who.uid)];
        sids.extend(groups);
        // Network (S-1-5-2).
        sids.extend([Sid::everyone(), Sid::authenticated(), Sid::new(NT, &[2])]);
        if who.uid == 0 {
            // BUILTIN\Administrators (S-1-5-32-544).
            sids.push(Sid::new(NT, &[32, 544]));
        }
        UserSids(sids)
    }

    /// Everybody with this identifier, or with none but those that all have.
    pub(crate) fn alone(sid: Option<&Sid>) -> UserSids {
        UserSids(sid.cloned().into_iter().chain([Sid::everyone(), Sid::authenticated()]).collect())
    }

    pub(crate) fn has(&self, sid: &Sid) -> bool {
        self.0.contains(sid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_have_identifiers_of_their_own() {
        assert_eq!((Sid::user(7).uid(), Sid::user(7).gid()), (Some(7), None));
        assert_eq!((Sid::group(7).uid(), Sid::group(7).gid()), (None, Some(7)));
        assert_eq!(Sid::everyone().uid(), None);
        assert_eq!(Sid::parse(&[Sid::user(7).0, vec![9; 9]].concat()), Some(Sid::user(7)));
        assert_eq!(Sid::parse(&[1, 16, 0, 0, 0, 0, 0, 5]), None);
        let token = UserSids::of(&Cred { uid: 7, gid: 8, ..Cred::default() });
        assert!(token.has(&Sid::user(7)) && token.has(&Sid::group(8)) && token.has(&Sid::everyone()));
        assert!(!token.has(&Sid::user(8)) && !token.has(&Sid::owner_rights()));
    }
}
