//! Names inside one file.

use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::fmt;

/// The longest label, in bytes (NAME_MAX of every system that we serve).
pub const LABEL_BYTES_MAX: usize = 255;

/// A child's name in its directory, or the name of an extended attribute: 1 to 255 bytes, not text.
///
/// Both are names *inside one file* and each is leased on its own, so they share one type. Up to 24
/// bytes need no allocation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "LabelBytes", into = "LabelBytes")]
pub struct Label(SmallVec<[u8; 24]>);

#[derive(Serialize, Deserialize)]
struct LabelBytes(SmallVec<[u8; 24]>);

/// The reason why bytes are not a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotALabel {
    /// Longer than [`LABEL_BYTES_MAX`].
    #[error("longer than 255 bytes")]
    TooLong,
    /// Empty, `.` or `..`, or holding a `/` or a zero byte.
    #[error("empty, '.', '..', or holding '/' or a zero byte")]
    Reserved,
}

impl Label {
    /// Checks and takes `bytes` as a child's label: no `/`, and neither `.` nor `..`.
    pub fn new(bytes: &[u8]) -> Result<Label, NotALabel> {
        let label = Label::attribute(bytes)?;
        if label.is_child() { Ok(label) } else { Err(NotALabel::Reserved) }
    }

    /// Checks and takes `bytes` as an extended attribute's name, which may hold a `/`.
    pub fn attribute(bytes: &[u8]) -> Result<Label, NotALabel> {
        if bytes.len() > LABEL_BYTES_MAX {
            return Err(NotALabel::TooLong);
        }
        if bytes.is_empty() || bytes.contains(&0) {
            return Err(NotALabel::Reserved);
        }
        Ok(Label(SmallVec::from_slice(bytes)))
    }

    /// Returns whether this may name a child. A decoded label is only known to be an attribute's
    /// name.
    pub fn is_child(&self) -> bool {
        !matches!(self.as_bytes(), b"." | b"..") && !self.0.contains(&b'/')
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TryFrom<LabelBytes> for Label {
    type Error = NotALabel;
    fn try_from(bytes: LabelBytes) -> Result<Label, NotALabel> {
        Label::attribute(&bytes.0)
    }
}

impl From<Label> for LabelBytes {
    fn from(label: Label) -> LabelBytes {
        LabelBytes(label.0)
    }
}

impl std::borrow::Borrow<[u8]> for Label {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}
