//! The versions of everything that machines share: messages, log entries, rows, and the answers of
//! [`namespace::decide()`]. All of these have one version number, since a cluster raises all of
//! them at once. There is version 1.
//!
//! A program knows all versions from [`Version::OLDEST`] to [`Version::NEWEST`]. Two machines speak
//! the newest that both know ([`crate::greeting()`]). The *cluster's* version is replicated state.
//! A Raft log entry raises it, once every member of the server group knows the next version. The
//! features of a version are used from that entry on.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A version of everything that machines share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version(pub u16);

impl Version {
    /// The oldest version that this program knows.
    pub const OLDEST: Version = Version(1);
    /// The newest version that this program knows. A change of a message, a log entry, a row or an
    /// answer makes a new version.
    pub const NEWEST: Version = Version(1);

    /// The version after this one.
    pub const fn next(self) -> Version {
        Version(self.0.saturating_add(1))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// All versions that a program knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The first of them.
    pub oldest: Version,
    /// The last of them.
    pub newest: Version,
}

impl Versions {
    /// The versions that this program knows.
    pub const KNOWN: Versions = Versions { oldest: Version::OLDEST, newest: Version::NEWEST };
    /// The versions of a program that knows one more version, with nothing new in it. Only tests of
    /// upgrades use it.
    pub const WITH_NEXT: Versions = Versions { newest: Version::NEWEST.next(), ..Versions::KNOWN };

    /// These versions with `newest` as the newest: those of a program that was made when that was
    /// the newest.
    pub fn held_to(self, newest: Version) -> Versions {
        Versions { newest, ..self }
    }

    /// Whether `version` is among them.
    pub fn know(&self, version: Version) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// The newest version that `other` knows, too.
    pub fn shared_with(&self, other: Versions) -> Option<Version> {
        let newest = self.newest.min(other.newest);
        (self.know(newest) && other.know(newest)).then_some(newest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.oldest == self.newest {
            true => write!(f, "version {}", self.newest),
            false => write!(f, "versions {} to {}", self.oldest, self.newest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_programs_speak_the_newest_that_both_know() {
        let versions = |oldest, newest| Versions { oldest: Version(oldest), newest: Version(newest) };
        for (one, other, shared) in [
            (versions(1, 2), versions(1, 2), Some(2)),
            (versions(1, 2), versions(1, 1), Some(1)),
            (versions(1, 2), versions(2, 7), Some(2)),
            (versions(1, 2), versions(3, 7), None),
            (versions(1, 2), versions(9, 2), None),
        ] {
            assert_eq!(one.shared_with(other), shared.map(Version), "{one} and {other}");
            assert_eq!(other.shared_with(one), shared.map(Version), "{other} and {one}");
        }
    }
}
