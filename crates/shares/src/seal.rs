//! Seals. SQLite's pages have no checksums, so each row of the lease database ends with a digest of
//! its table's name and all of its values. A row with a broken seal is never believed: its reader
//! gets an error that says "corrupt".

use namespace::ShareId;
use rusqlite::{
    Connection, OptionalExtension, Params, Row, params_from_iter,
    types::{Type, Value, ValueRef},
};
use twox_hash::XxHash3_64;

/// A row was changed by something other than this program.
#[derive(Debug, thiserror::Error)]
#[error("a row of the table {0} is not what was written")]
pub(crate) struct BrokenSeal(&'static str);

/// A row of a table. The seal, its last column, is not part of it.
pub(crate) trait Sealed: Sized {
    /// The table.
    const TABLE: &'static str;
    /// The statement that inserts a row or replaces the one with the same key.
    const PUT: &'static str;
    /// The values in the order of the columns.
    fn values(&self) -> Vec<Value>;
    /// Parses a row whose seal is intact. `None`: this program does not write such values.
    fn parse(columns: &Columns<'_>) -> Option<Self>;
}

/// The columns of a row whose seal is intact.
pub(crate) struct Columns<'a>(&'a Row<'a>);

impl Columns<'_> {
    pub fn integer(&self, column: usize) -> Option<i64> {
        self.optional(column)?
    }

    pub fn optional(&self, column: usize) -> Option<Option<i64>> {
        match self.0.get_ref(column).ok()? {
            ValueRef::Integer(value) => Some(Some(value)),
            ValueRef::Null => Some(None),
            _ => None,
        }
    }

    pub fn blob(&self, column: usize) -> Option<Option<&[u8]>> {
        match self.0.get_ref(column).ok()? {
            ValueRef::Blob(bytes) => Some(Some(bytes)),
            ValueRef::Null => Some(None),
            _ => None,
        }
    }

    pub fn text(&self, column: usize) -> Option<String> {
        self.0.get_ref(column).ok()?.as_str().ok().map(str::to_owned)
    }

    pub fn unsigned(&self, column: usize) -> Option<u64> {
        u64::try_from(self.integer(column)?).ok()
    }

    pub fn share(&self, column: usize) -> Option<ShareId> {
        self.blob(column)??.try_into().ok().map(ShareId)
    }
}

fn seal<'a>(table: &str, values: impl Iterator<Item = ValueRef<'a>>) -> i64 {
    let mut bytes = Vec::with_capacity(160);
    let with_length = |bytes: &mut Vec<u8>, kind, value: &[u8]| {
        bytes.push(kind);
        bytes.extend((value.len() as u64).to_le_bytes());
        bytes.extend(value);
    };
    with_length(&mut bytes, 0, table.as_bytes());
    for value in values {
        match value {
            ValueRef::Null => bytes.push(1),
            ValueRef::Integer(value) => with_length(&mut bytes, 2, &value.to_le_bytes()),
            ValueRef::Real(value) => with_length(&mut bytes, 3, &value.to_le_bytes()),
            ValueRef::Text(value) => with_length(&mut bytes, 4, value),
            ValueRef::Blob(value) => with_length(&mut bytes, 5, value),
        }
    }
    XxHash3_64::oneshot(&bytes).cast_signed()
}

/// Reads a row of which all columns were selected, and checks its seal.
pub(crate) fn unseal<T: Sealed>(row: &Row<'_>) -> rusqlite::Result<T> {
    let last = row.as_ref().column_count().saturating_sub(1);
    let values = (0..last).map(|column| row.get_ref(column)).collect::<Result<Vec<_>, _>>()?;
    let whole = row.get_ref(last)? == ValueRef::Integer(seal(T::TABLE, values.into_iter()));
    let parsed = if whole { T::parse(&Columns(row)) } else { None };
    let broken = || BrokenSeal(T::TABLE).into();
    parsed.ok_or_else(|| rusqlite::Error::FromSqlConversionFailure(last, Type::Integer, broken()))
}

/// Inserts a row or replaces the one with the same key.
pub(crate) fn put<T: Sealed>(connection: &Connection, row: &T) -> rusqlite::Result<()> {
    let mut values = row.values();
    values.push(Value::Integer(seal(T::TABLE, values.iter().map(ValueRef::from))));
    connection.prepare_cached(T::PUT)?.execute(params_from_iter(values))?;
    Ok(())
}

/// The first row that a query finds. The query selects all columns.
pub(crate) fn one<T: Sealed>(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
) -> rusqlite::Result<Option<T>> {
    connection.prepare_cached(sql)?.query_row(parameters, unseal).optional()
}

/// All rows that a query finds. The query selects all columns.
pub(crate) fn all<T: Sealed>(
    connection: &Connection,
    sql: &str,
    parameters: impl Params,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare_cached(sql)?.query_map(parameters, unseal)?.collect()
}
