//! The hosts of stored shares, and how a share is stored, read and repaired: the share host of a
//! machine, the hosts of the cluster, copies and fragments. The crate asks the directory's state
//! through [`ReferenceIndex`] alone. It cannot reach the group, the machine and front doors.

mod account_client;
mod accounts;
mod acted;
mod copies;
mod fragments;
mod hosts;
mod peers;
mod pieces;
mod references;
mod repair;
mod report;
mod serving;
mod share_host;
mod shares_server;
mod space;
#[cfg(test)]
mod tests;

pub use account_client::{AccountClient, AccountClientError, KeyFile};
pub use copies::{Copies, ShareRange, StoredUpload};
pub use hosts::{HostList, Hosts, ListedHost};
pub use peers::{Peers, fetched};
pub use pieces::Pieces;
pub use references::{Arrangement, ReferenceIndex};
pub use repair::{WholeError, whole};
pub use report::{IncidentReport, PassProcess, PassReport, StoreReport, Sum, Suspension};
pub use serving::serve_shares;
pub use share_host::{Chore, Hold, ShareHost};
pub use shares_server::{GROUP, ShareSettings, Shares, SharesError, uploader, wall_clock};
pub use space::{ELSEWHERE, cluster, measure};
