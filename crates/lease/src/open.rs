//! How files are open: the seven black boxes of each (BlackBox §4.3, §4.4), and sets of their
//! Booleans.

use crate::Field;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a handle lets its user do, or keeps everyone else from (BlackBox §4.4; Windows says the
/// latter inversely, as what is shared).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// Reads content.
    AccessRead,
    /// Writes content.
    AccessWrite,
    /// Sets the deletion disposition.
    AccessDelete,
    /// Nobody else reads.
    ExcludeRead,
    /// Nobody else writes.
    ExcludeWrite,
    /// Nobody else sets the disposition.
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

    /// The one mode of any other handle that this one cannot stand beside: `AccessX` and `ExcludeX`
    /// (BlackBox §4.4).
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

/// How a file is open, to one handle or to many: at all, and in which modes. One Boolean for each
/// of [`Field::BLACK_BOXES`].
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Open(u8);

impl Open {
    /// Not at all.
    pub const CLOSED: Open = Open(0);
    /// In every way: a set of all fields.
    pub const EVERY: Open = Open((1 << Field::BLACK_BOXES.len()) - 1);

    /// One handle, with these modes.
    pub fn with(modes: impl IntoIterator<Item = Mode>) -> Open {
        modes.into_iter().fold(Open(1), |open, mode| Open(open.0 | bit(&Field::Mode(mode))))
    }

    /// A handle as POSIX has it: for reading, for writing, keeping nobody else from anything.
    pub const fn posix(read: bool, write: bool) -> Open {
        Open(1 | (read as u8) << 1 | (write as u8) << 2)
    }

    /// Whether the Boolean of this black box is true; never of another field.
    pub fn has(self, field: &Field) -> bool {
        self.0 & bit(field) != 0
    }

    /// Whether it is open in `mode`.
    pub fn has_mode(self, mode: Mode) -> bool {
        self.has(&Field::Mode(mode))
    }

    /// Sets the Boolean of a black box.
    pub fn set(&mut self, field: &Field, value: bool) {
        self.0 = if value { self.0 | bit(field) } else { self.0 & !bit(field) };
    }

    /// Whether it is not open at all.
    pub fn is_closed(self) -> bool {
        self == Open::CLOSED
    }

    /// The modes.
    pub fn modes(self) -> impl Iterator<Item = Mode> {
        Mode::ALL.into_iter().filter(move |mode| self.has_mode(*mode))
    }

    /// The fields whose Boolean is true.
    pub fn fields(self) -> impl Iterator<Item = Field> {
        Field::BLACK_BOXES.into_iter().filter(move |field| self.has(field))
    }

    /// What is true of either.
    pub fn or(self, other: Open) -> Open {
        Open(self.0 | other.0)
    }

    /// What is true of this, and not of `other`.
    pub fn but(self, other: Open) -> Open {
        Open(self.0 & !other.0)
    }

    /// The seven Booleans as bits, in the order of [`Field::BLACK_BOXES`].
    pub fn bits(self) -> u8 {
        self.0
    }
}

impl From<Open> for u8 {
    fn from(open: Open) -> u8 {
        open.0
    }
}

impl TryFrom<u8> for Open {
    type Error = &'static str;

    fn try_from(bits: u8) -> Result<Open, &'static str> {
        if bits & !Open::EVERY.0 == 0 { Ok(Open(bits)) } else { Err("a file is open in seven ways at most") }
    }
}

impl fmt::Debug for Open {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.fields()).finish()
    }
}

/// What a client knows of how *others* have a file open: where it holds `OtherRead`, what their
/// values come to, and nothing of any one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Others {
    known: Open,
    open: Open,
}

impl Others {
    /// What the others' values of the black box come to, if that is known.
    pub fn get(self, field: &Field) -> Option<bool> {
        self.known.has(field).then(|| self.open.has(field))
    }

    /// Learns it, or forgets it.
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
            let mut open = Open::CLOSED;
            open.set(&field, true);
            assert_eq!(open.bits(), 1 << at);
            assert_eq!(open.fields().collect::<Vec<_>>(), [field]);
        }
        assert_eq!(Open::with(Mode::ALL), Open::EVERY);
        assert!(Open::try_from(0x80).is_err());
        assert_eq!(Open::posix(true, true), Open::with([Mode::AccessRead, Mode::AccessWrite]));
        assert_eq!(Open::posix(false, false), Open::with([]));
        let mut none = Open::CLOSED;
        none.set(&Field::Content, true);
        assert!(none.is_closed() && !Open::EVERY.has(&Field::Content));
    }

    #[test]
    fn modes_are_against_each_other_in_pairs() {
        for mode in Mode::ALL {
            assert_ne!(mode.against(), mode);
            assert_eq!(mode.against().against(), mode);
        }
    }
}
