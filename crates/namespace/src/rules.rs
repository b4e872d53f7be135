//! The versions of the rules.

/// A version of the rules: [`crate::decide()`], [`crate::fold()`], and how effects are carried out.
/// Each update names the version that decided it, and is decided again by the same; whatever
/// changes an answer is a new version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Rules {
    /// The oldest that this program knows.
    Two = 2,
    /// The time of the last status change moves with every change ([`crate::Timestamp::moved`]).
    /// Before, one by a machine whose clock was behind left it as it was, so who compares these
    /// times (incremental backups do) did not see the change. And there are policies
    /// ([`crate::POLICY`]).
    Three = 3,
}

impl Rules {
    /// All that this program knows, the oldest first.
    pub const ALL: [Rules; 2] = [Rules::Two, Rules::Three];
    /// The newest.
    pub const NEWEST: Rules = Rules::Three;

    /// Those of this number, as messages name them.
    pub fn numbered(number: u16) -> Option<Rules> {
        Rules::ALL.into_iter().find(|rules| rules.number() == number)
    }

    /// How messages name them.
    pub fn number(self) -> u16 {
        self as u16
    }
}
