//! The versions of the rules.

/// A version of the rules: [`crate::decide()`], [`crate::fold()`], and the execution of effects.
///
/// Each update names the version that decided it, and is decided again by the same version. A
/// change of any answer is a new version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Rules {
    /// The oldest that this program knows.
    Two = 2,
    /// The time of the last status change moves with every change ([`crate::Timestamp::moved`]).
    /// Before, a change by a machine with a slow clock left the time as it was. Programs that
    /// compare these times (incremental backups) then missed the change. This version also has
    /// policies ([`crate::POLICY`]).
    Three = 3,
}

impl Rules {
    /// All versions that this program knows, oldest first.
    pub const ALL: [Rules; 2] = [Rules::Two, Rules::Three];
    /// The newest version.
    pub const NEWEST: Rules = Rules::Three;

    /// The version with this number, as messages carry it.
    pub fn numbered(number: u16) -> Option<Rules> {
        Rules::ALL.into_iter().find(|rules| rules.number() == number)
    }

    /// The number of this version in messages.
    pub fn number(self) -> u16 {
        self as u16
    }
}
