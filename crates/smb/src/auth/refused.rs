//! The end of a logon that was refused.

use crate::wire::Malformed;

/// A refusal. Its reason is for the log; a client learns only that it was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the logon failed: {0}")]
pub struct Refused(pub &'static str);

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Refused {
        Refused(malformed.0)
    }
}
