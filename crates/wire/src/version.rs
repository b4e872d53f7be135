//! The versions of what machines share. One number for all of it, since a cluster raises all of it
//! at once:
//!
//! | version | messages | log entries and rows | rules |
//! | --- | --- | --- | --- |
//! | 3 | the first that later ones know | likewise | 2 |
//! | 4 | what accounts and people ask of share servers; weights of hosts; answers that acknowledge the log | what the version is, which each machine speaks, what servers weigh, and who published a share | 3 |
//! | 5 | files that are written through | which those are | 3 |
//! | 6 | what a client doubts while the server does something for it | digests of the state by another function | 3 |
//!
//! A program knows all from [`Version::OLDEST`] to [`Version::NEWEST`]. Two machines speak the
//! newest that both know ([`crate::greeting()`]). The *cluster's* version is replicated state: log
//! entries, rows and rules of a later one are used from the entry on that raises it, and it is
//! raised once every member of the server group knows the next.

use namespace::Rules;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A version. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version(pub u16);

impl Version {
    /// The oldest that this program knows.
    pub const OLDEST: Version = Version(3);
    /// The newest that this program knows. A change of a message, a log entry, a row or the rules
    /// is a new one.
    pub const NEWEST: Version = Version(6);

    /// The rules by which operations are decided in it.
    pub fn rules(self) -> Rules {
        if self < Version(4) { Rules::Two } else { Rules::Three }
    }

    /// Whether hosts have weights in it. Before, they keep content or do not.
    pub fn has_weights(self) -> bool {
        self >= Version(4)
    }

    /// Whether an answer may acknowledge the log before its question: see
    /// [`crate::ToClient::Applied`].
    pub fn answers_acknowledge(self) -> bool {
        self >= Version(4)
    }

    /// Whether content may be written through in it: see [`crate::LogEntry::FlushedThrough`].
    pub fn writes_through(self) -> bool {
        self >= Version(5)
    }

    /// Whether a client says in it what it doubts while the server does something for it: see
    /// [`crate::ToServer::Ask`].
    pub fn ships_with_doubts(self) -> bool {
        self >= Version(6)
    }

    /// Whether the running hash of a server's state is made for long rows in it.
    pub fn digests_long_rows(self) -> bool {
        self >= Version(6)
    }

    /// The one after it.
    pub fn next(self) -> Version {
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
    /// What this program knows.
    pub const KNOWN: Versions = Versions { oldest: Version::OLDEST, newest: Version::NEWEST };

    /// What a program knows that is held to `newest`: as one that was made when that was the
    /// newest.
    pub fn held_to(newest: Version) -> Versions {
        Versions { newest, ..Versions::KNOWN }
    }

    /// Whether `version` is among them.
    pub fn know(&self, version: Version) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// The newest that `other` knows, too.
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
            (versions(3, 4), versions(3, 4), Some(4)),
            (versions(3, 4), versions(3, 3), Some(3)),
            (versions(3, 4), versions(4, 7), Some(4)),
            (versions(3, 4), versions(5, 7), None),
            (versions(3, 4), versions(9, 2), None),
        ] {
            assert_eq!(one.shared_with(other), shared.map(Version), "{one} and {other}");
            assert_eq!(other.shared_with(one), shared.map(Version), "{other} and {one}");
        }
    }

    #[test]
    fn each_version_has_its_rules() {
        assert_eq!([3, 4, 5, 6].map(|version| Version(version).rules().number()), [2, 3, 3, 3]);
    }
}
