//! The stored form of a field, also between servers: its clients in the order of sessions.

use super::{Aggregate, BlackBox, Class, ConditionViolation, Own};
use crate::SessionId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The server's knowledge of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TableRow<V> {
    /// The client.
    pub session: SessionId,
    /// Its own value.
    pub own: Own<V>,
    /// Whether it holds `OtherRead`.
    pub reads: bool,
}

impl<V> TableRow<V> {
    fn class(self) -> Class<V> {
        Class { own: self.own, reads: self.reads }
    }
}

/// The reason why rows make no field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotABlackBox {
    /// The rows are not in order. Equal fields must have equal rows.
    #[error("clients of a black-box lease not in their one order")]
    Disorder,
    /// A lease is granted that cannot be granted, or an unlisted client is listed.
    #[error(transparent)]
    Broken(#[from] ConditionViolation),
}

impl<A: Aggregate> BlackBox<A> {
    /// Rebuilds a field from the rows of [`BlackBox::members`].
    pub fn from_rows(rows: &[TableRow<A::Value>]) -> Result<BlackBox<A>, NotABlackBox> {
        if !rows.is_sorted_by(|a, b| a.session < b.session) {
            return Err(NotABlackBox::Disorder);
        }
        if rows.iter().any(|row| row.class() == Self::UNLISTED) {
            return Err(ConditionViolation::Miscounted.into());
        }
        let field = BlackBox::of(rows.iter().copied());
        field.check()?;
        Ok(field)
    }

    /// Builds the field of these clients without a check. [`BlackBox::check`] finds whether it can
    /// exist.
    pub(crate) fn of(rows: impl IntoIterator<Item = TableRow<A::Value>>) -> BlackBox<A> {
        let mut field = BlackBox::new();
        for row in rows {
            field.put(row.session, row.class());
        }
        field
    }
}

impl<A: Aggregate> Serialize for BlackBox<A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.members().serialize(serializer)
    }
}

impl<'de, A: Aggregate> Deserialize<'de> for BlackBox<A> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BlackBox<A>, D::Error> {
        let rows: Vec<TableRow<A::Value>> = Deserialize::deserialize(deserializer)?;
        BlackBox::from_rows(&rows).map_err(serde::de::Error::custom)
    }
}
