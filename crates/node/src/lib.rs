//! Hosts the state machines: data directory, Raft, metadata store, threads, clocks.

mod door;
mod store;

pub use door::{Answer, Door, Told};
pub use store::{Checkpoint, EXIT_DISK, RowStore, RowView, StoreError, StoreSettings, StoreStats};
