//! The errors of the store's file.

use os::is_lost;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The reason why the store's file cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RowStoreError {
    /// The disk failed, or the file's content is wrong.
    #[error("{doing} {file}: {cause}", file = file.display())]
    File {
        /// The operation that failed.
        doing: &'static str,
        /// The file.
        file: PathBuf,
        /// Why it failed.
        cause: Arc<redb::Error>,
    },
    /// Another version wrote the file.
    #[error("{file} has format {found}, this version reads {}", super::FORMAT, file = file.display())]
    Format {
        /// The file.
        file: PathBuf,
        /// The format that it declares.
        found: u32,
    },
}

impl RowStoreError {
    pub(super) fn new(doing: &'static str, file: &Path, cause: impl Into<redb::Error>) -> RowStoreError {
        RowStoreError::File { doing, file: file.to_owned(), cause: Arc::new(cause.into()) }
    }

    /// Returns whether written data is lost: the file holds other bytes, or the disk cannot read
    /// it. The remedy is another member's state, or a backup.
    pub fn is_damage(&self) -> bool {
        let RowStoreError::File { cause, .. } = self else { return false };
        match &**cause {
            redb::Error::Corrupted(_) => true,
            redb::Error::Io(cause) => is_lost(cause),
            _ => false,
        }
    }
}
