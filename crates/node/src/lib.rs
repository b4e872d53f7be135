//! Hosts the state machines: data directory, Raft, metadata store, threads, clocks.

mod clock;
mod control;
mod data;
mod door;
mod engine;
mod fsck;
mod group;
mod machine;
mod pieces;
mod shares_server;
mod space;
mod status;
mod store;

pub use control::{AskError, ask_status, fsck};
pub use data::{DataDir, DataError, FORMAT, Identity};
pub use door::{Answer, Door, Told};
pub use fsck::FsckReport;
pub use group::{Deliver, Group, GroupError, GroupSettings, GroupStatus, LogError};
pub use machine::{Machine, MachineError};
pub use shares_server::SharesError;
pub use status::StatusReport;
pub use store::{Checkpoint, EXIT_DISK, RowStore, RowView, StoreError, StoreSettings, StoreStats};
