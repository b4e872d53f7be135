//! Bytes of the store that make no sense.

/// A row that cannot be what this server wrote. It stops the server: a wrong server is worse than a stopped one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("row {}: {what} cannot be read", key.escape_ascii())]
pub struct Corrupt {
    /// Which row.
    pub key: Vec<u8>,
    /// What of it.
    pub what: &'static str,
}

impl Corrupt {
    pub(crate) fn at(key: &[u8], what: &'static str) -> Corrupt {
        Corrupt { key: key.to_vec(), what }
    }
}
