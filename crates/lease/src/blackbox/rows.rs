//! A field as it is stored and sent between servers: its clients in the order of sessions.

use super::{Aggregate, BlackBox, Class, Own, Violation};
use crate::SessionId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What the server knows of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Row<V> {
    /// Whose.
    pub session: SessionId,
    /// Its own value.
    pub own: Own<V>,
    /// Whether it holds `OtherRead`.
    pub reads: bool,
}

impl<V> Row<V> {
    fn class(self) -> Class<V> {
        Class { own: self.own, reads: self.reads }
    }
}

/// Why rows make no field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotABlackBox {
    /// Two fields that are the same have the same rows.
    #[error("clients of a black-box lease not in their one order")]
    Disorder,
    /// Somebody was granted what cannot be granted, or is where nobody is.
    #[error(transparent)]
    Broken(#[from] Violation),
}

impl<A: Aggregate> BlackBox<A> {
    /// The field that [`BlackBox::members`] gives these rows of.
    pub fn from_rows(rows: &[Row<A::Value>]) -> Result<BlackBox<A>, NotABlackBox> {
        if !rows.is_sorted_by(|a, b| a.session < b.session) {
            return Err(NotABlackBox::Disorder);
        }
        if rows.iter().any(|row| row.class() == Self::UNLISTED) {
            return Err(Violation::Miscounted.into());
        }
        let field = BlackBox::of(rows.iter().copied());
        field.check()?;
        Ok(field)
    }

    /// The field of these clients, whatever they hold: [`BlackBox::check`] says whether that can
    /// be.
    pub(crate) fn of(rows: impl IntoIterator<Item = Row<A::Value>>) -> BlackBox<A> {
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
        let rows: Vec<Row<A::Value>> = Deserialize::deserialize(deserializer)?;
        BlackBox::from_rows(&rows).map_err(serde::de::Error::custom)
    }
}
