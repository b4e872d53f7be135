//! Open files: the seven black boxes of each file (BlackBox §4.3, §4.4), and sets of their
//! Booleans.

use crate::Field;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A right that a handle gives its user, or denies to all others (BlackBox §4.4). Windows expresses
/// the latter inversely, as sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// Reads content.
    AccessRead,
    /// Writes content.
    AccessWrite,
    /// Sets the deletion disposition.
    AccessDelete,
    /// No other handle reads.
    ExcludeRead,
    /// No other handle writes.
    ExcludeWrite,
    /// No other handle sets the disposition.
    ExcludeDelete,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::AccessRead => "access read",
            Mode::AccessWrite => "access write",
            Mode::AccessDelete => "access delete",
            Mode::ExcludeRead => "exclude read",
            Mode::ExcludeWrite => "exclude write",
            Mode::ExcludeDelete => "exclude delete",
        })
    }
}

impl Mode {
    /// All six.
    pub const ALL: [Mode; 6] = [
        Mode::AccessRead,
        Mode::AccessWrite,
        Mode::AccessDelete,
        Mode::ExcludeRead,
        Mode::ExcludeWrite,
        Mode::ExcludeDelete,
    ];

    /// Returns the one mode of other handles that conflicts with this one: `AccessX` and `ExcludeX`
    /// conflict (BlackBox §4.4).
    pub fn against(self) -> Mode {
        match self {
            Mode::AccessRead => Mode::ExcludeRead,
            Mode::AccessWrite => Mode::ExcludeWrite,
            Mode::AccessDelete => Mode::ExcludeDelete,
            Mode::ExcludeRead => Mode::AccessRead,
            Mode::ExcludeWrite => Mode::AccessWrite,
            Mode::ExcludeDelete => Mode::AccessDelete,
        }
    }
}

/// The state of a file's handles, one or many: whether it is open, and in which modes. It has one
/// Boolean for each of [`Field::BLACK_BOXES`].
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct OpenModes(u8);

impl OpenModes {
    /// Not open.
    pub const CLOSED: OpenModes = OpenModes(0);
    /// Open in every way: a set of all fields.
    pub const EVERY: OpenModes = OpenModes((1 << Field::BLACK_BOXES.len()) - 1);

    /// Returns one handle with these modes.
    pub fn with(modes: impl IntoIterator<Item = Mode>) -> OpenModes {
        modes.into_iter().fold(OpenModes(1), |open, mode| OpenModes(open.0 | bit(&Field::Mode(mode))))
    }

    /// Returns a POSIX handle: it may read or write, and excludes nothing.
    pub const fn posix(read: bool, write: bool) -> OpenModes {
        OpenModes(1 | (read as u8) << 1 | (write as u8) << 2)
    }

    /// Returns the Boolean of this black box; false for other fields.
    pub fn has(self, field: &Field) -> bool {
        self.0 & bit(field) != 0
    }

    /// Returns whether the file is open in `mode`.
    pub fn has_mode(self, mode: Mode) -> bool {
        self.has(&Field::Mode(mode))
    }

    /// Sets the Boolean of a black box.
    pub fn set(&mut self, field: &Field, value: bool) {
        self.0 = if value { self.0 | bit(field) } else { self.0 & !bit(field) };
    }

    /// Returns whether the file is not open.
    pub fn is_closed(self) -> bool {
        self == OpenModes::CLOSED
    }

    /// Returns the modes.
    pub fn modes(self) -> impl Iterator<Item = Mode> {
        Mode::ALL.into_iter().filter(move |mode| self.has_mode(*mode))
    }

    /// Returns the fields whose Boolean is true.
    pub fn fields(self) -> impl Iterator<Item = Field> {
        Field::BLACK_BOXES.into_iter().filter(move |field| self.has(field))
    }

    /// Returns the union.
    pub fn or(self, other: OpenModes) -> OpenModes {
        OpenModes(self.0 | other.0)
    }

    /// Returns the Booleans that are true here and false in `other`.
    pub fn but(self, other: OpenModes) -> OpenModes {
        OpenModes(self.0 & !other.0)
    }

    /// Returns the seven Booleans as bits, in the order of [`Field::BLACK_BOXES`].
    pub fn bits(self) -> u8 {
        self.0
    }
}

impl From<OpenModes> for u8 {
    fn from(open: OpenModes) -> u8 {
        open.0
    }
}

impl TryFrom<u8> for OpenModes {
    type Error = &'static str;

    fn try_from(bits: u8) -> Result<OpenModes, &'static str> {
        if bits & !OpenModes::EVERY.0 == 0 {
            Ok(OpenModes(bits))
        } else {
            Err("a file is open in seven ways at most")
        }
    }
}

impl fmt::Debug for OpenModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.fields()).finish()
    }
}

/// A client's knowledge of the handles of *others*: the aggregate of their values where it holds
/// `OtherRead`, and nothing of any single client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Others {
    known: OpenModes,
    open: OpenModes,
}

impl Others {
    /// Returns the aggregate of the others' values of the black box, if it is known.
    pub fn get(self, field: &Field) -> Option<bool> {
        self.known.has(field).then(|| self.open.has(field))
    }

    /// Sets the aggregate, or forgets it.
    pub fn set(&mut self, field: &Field, value: Option<bool>) {
        self.known.set(field, value.is_some());
        self.open.set(field, value == Some(true));
    }
}

fn bit(field: &Field) -> u8 {
    match field {
        Field::Handles => 1,
        Field::Mode(mode) => 2 << (*mode as u8),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_black_box_has_a_boolean_of_its_own() {
        for (at, field) in Field::BLACK_BOXES.into_iter().enumerate() {
            let mut open = OpenModes::CLOSED;
            open.set(&field, true);
            assert_eq!(open.bits(), 1 << at);
            assert_eq!(open.fields().collect::<Vec<_>>(), [field]);
        }
        assert_eq!(OpenModes::with(Mode::ALL), OpenModes::EVERY);
        assert!(OpenModes::try_from(0x80).is_err());
        assert_eq!(OpenModes::posix(true, true), OpenModes::with([Mode::AccessRead, Mode::AccessWrite]));
        assert_eq!(OpenModes::posix(false, false), OpenModes::with([]));
        let mut none = OpenModes::CLOSED;
        none.set(&Field::Content, true);
        assert!(none.is_closed() && !OpenModes::EVERY.has(&Field::Content));
    }

    #[test]
    fn modes_are_against_each_other_in_pairs() {
        for mode in Mode::ALL {
            assert_ne!(mode.against(), mode);
            assert_eq!(mode.against().against(), mode);
        }
    }
}
