//! The data directory of a machine: its format, its lock, and the machine's identity.
//! The crate knows files. It cannot reach connections, the directory's state and stored shares.
//!
//! ```text
//! format         the version of this layout
//! copies/        second copies of the small files of this list: see [`read_file`]
//! ballast        space kept free for a start on a full disk, see [`ballast`]
//! lock           held while a process uses the directory; names that process
//! machine.json   the machine's number, its count of starts, and the parts that the directory had
//! machine.key    its private key; machine.crt, authority.crt: its certificate and the authority's
//! authority.key  the key of the first authority, until it stands in the rows
//! cluster.json   on a machine that has joined: the servers' addresses, and whether it is a server
//! salvage/       changes that could not be applied
//! server/        the directory server: Raft log and store of rows
//! server.mark    how far the log in server/ is durable: see `group::log`
//! server.damaged-SECONDS/  the former state of a server that was added anew: see [`quarantine`]
//! scrub.json     when everything but the shares was last read: see `scrub`
//! shares/        the share server: share files and lease database
//! restoring      present while the directory is made out of a backup
//! leasehold.log  the log of a machine in the background
//! control        socket for `status` and `fsck` while a process runs
//! ```

pub mod ballast;
mod cluster;
mod dir;
mod error;
mod identity;
mod placed;
pub mod quarantine;
mod server_files;
mod small;

pub use cluster::{Cluster, ClusterFile, ServerNews};
pub use dir::{BegunRestore, DataDir, Joining, holder, read_small};
pub use error::{DataError, io, missing};
pub use identity::Identity;
pub use placed::Placed;
pub use server_files::{MARK, lacks_server, remove_server};
pub use small::{read_file, remove_file, replace_file, replace_plain, sync_dir};

/// The layout that this program reads and writes.
pub const FORMAT: u32 = 1;
