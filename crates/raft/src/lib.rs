//! The replicated hosts of directories: openraft groups of one member or several, the log and the
//! rows of a machine's groups. The crate knows the directory's state machine and a disk. It cannot
//! reach connections, machines and share servers.

mod alarm;
mod batch;
mod bit_repair;
mod disk;
mod group;
mod group_host;
mod group_id;
mod indispensable;
mod life;
mod log;
mod lookout;
mod machine;
mod peers;
mod proposer;
mod queue;
mod restored;
mod runtime;
mod standing;
mod starts;
mod stop;
mod storage;
mod store;
mod trust;
mod types;

pub use alarm::MemberEnd;
pub use disk::{Disk, DiskFile};
pub use group::{Group, GroupError, GroupSettings, GroupStatus, Logged, MemberPlace, MembersError, wait};
pub use group_host::{GroupFiles, GroupHost};
pub use group_id::GroupId;
pub use life::Life;
pub use log::LogError;
pub use machine::{Deliver, Event};
pub use peers::{AnswerFuture, Conversation, Wire, Wires};
pub use restored::Restored;
pub use standing::{Member, Standing};
pub use stop::{EXIT_DISK, stop};
pub use store::{
    Checkpoint, FORMAT, Reread, Row, RowFile, RowStore, RowStoreError, RowView, StoreSettings, StoreStats,
};
pub use types::{Host, Keeping};
pub use wire::FOUNDER_MEMBER as FOUNDER;
