//! The rows read once more from the disk. The caches of redb and the kernel do not show what a disk
//! has changed since.

use super::blocks::Blocks;
use super::file::read_anew;
use super::{Row, RowStoreError, RowView};
use redb::Database;

/// Memory for pages. Each is read once.
const CACHE_BYTES: usize = 4 << 20;

/// Rows as of a checkpoint, read anew. While one exists, the file grows by the changes made
/// meanwhile.
pub struct Reread {
    rows: RowView,
    /// The database that reads `rows`.
    _database: Database,
    /// Keeps the pages that are read from being reused.
    _pinned: RowView,
}

impl Reread {
    pub(super) fn new(blocks: &Blocks, pinned: RowView) -> Result<Reread, RowStoreError> {
        let path = pinned.path.clone();
        let open = || -> Result<_, redb::Error> {
            let database =
                Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(blocks.as_of_now()?)?;
            let (rows, position) = read_anew(&database, pinned.group)?;
            let rows = RowView { rows, position, ..pinned.clone() };
            Ok(Reread { rows, _database: database, _pinned: pinned })
        };
        open().map_err(|error| RowStoreError::new("reading", &path, error))
    }

    /// Returns a page of rows, see [`RowView::page`].
    pub fn page(&self, after: Option<&[u8]>, limit: usize) -> Result<Vec<Row>, RowStoreError> {
        self.rows.page(after, limit)
    }
}
