//! The rows once more, from the disk: what redb and the kernel remember of them does not show what
//! a disk has done to them since.

use super::blocks::Blocks;
use super::{Row, RowView, StoreError, read_meta, read_rows};
use redb::Database;

/// Memory for pages: all are read once.
const CACHE_BYTES: usize = 4 << 20;

/// Rows as of a checkpoint, read anew. While there is one, the file grows by what is changed
/// meanwhile.
pub struct Reread {
    rows: RowView,
    /// Reads `rows`.
    _database: Database,
    /// Keeps the pages that are read from being used again.
    _pinned: RowView,
}

impl Reread {
    pub(super) fn new(blocks: &Blocks, pinned: RowView) -> Result<Reread, StoreError> {
        let path = pinned.path.clone();
        let open = || -> Result<_, redb::Error> {
            let database =
                Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(blocks.as_of_now()?)?;
            let position = read_meta(&database)?.and_then(|(_, position)| position);
            let rows = RowView { rows: read_rows(&database)?, position, ..pinned.clone() };
            Ok(Reread { rows, _database: database, _pinned: pinned })
        };
        open().map_err(|error| StoreError::new("reading", &path, error))
    }

    /// See [`RowView::page`].
    pub fn page(&self, after: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, StoreError> {
        self.rows.page(after, limit)
    }
}
