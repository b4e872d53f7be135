//! The control protocol. A connection carries one request, a line of JSON. The answers are lines of
//! JSON too, progress first.

use crate::cluster::Invitation;
use crate::progress::{ControlNote, ControlProgress};
use crate::refusal::ControlRefusal;
use crate::stored::SharesRequest;
use backup::BackupOrder;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A request, with the type of its answer.
#[derive(Debug, Serialize, Deserialize)]
pub enum ControlRequest {
    /// The machine's work at present: [`crate::StatusReport`].
    Status,
    /// The calls and counts of now, [`crate::LiveReport`]; `true` has directories counted.
    Live(bool),
    /// A check of everything: [`crate::FsckReport`].
    Fsck,
    /// A pass through the whole disk state: [`crate::ScrubReport`].
    Scrub,
    /// A token to join with: [`crate::Invited`].
    Invite(Invitation),
    /// The open invitations: [`crate::InvitationReport`].
    Invitations,
    /// Revokes the invitation of this name.
    Revoke(String),
    /// The machines of the cluster: [`crate::MachineReport`].
    Machines,
    /// Expels a machine: [`crate::MachineName`].
    Expel(String),
    /// The leases on the file at this path: [`crate::FileLeases`].
    Leases(String),
    /// The servers of the cluster: [`crate::ServerStanding`].
    Servers,
    /// Makes a machine a server: [`crate::MachineName`].
    AddServer(String),
    /// Makes a server a machine like the others: [`crate::MachineName`].
    RemoveServer(String),
    /// Moves all shares off a server: [`crate::MachineName`].
    Drain(String),
    /// Renews the authority: [`crate::AuthorityReport`].
    RenewAuthority,
    /// Which server of the directory manages which regions, or the file at this path:
    /// [`crate::MapReport`].
    Map(Option<String>),
    /// Hands the region that begins at this path over to the server of this number, or to a new
    /// one: [`crate::RegionMove`].
    Delegate {
        /// The path.
        path: String,
        /// The server's number; none for a new server.
        to: Option<u16>,
        /// Whether it is pinned there.
        pin: bool,
    },
    /// Pins the file at this path to its server, or takes the pin away: [`crate::PinnedFile`].
    Pin {
        /// The path.
        path: String,
        /// Whether it is pinned.
        pinned: bool,
    },
    /// The loads of the servers of the directory: [`crate::BalanceReport`].
    Balance {
        /// Whether the first exchange that is due is made.
        acts: bool,
    },
    /// Has regions move by themselves, or not: [`crate::BalanceSwitch`].
    SwitchBalance(bool),
    /// Makes a backup: [`backup::BackupReport`].
    Backup(BackupOrder),
    /// About stored shares; see [`SharesRequest`].
    Shares(SharesRequest),
}

/// A line of the answer.
#[derive(Debug, Serialize, Deserialize)]
pub enum ControlReply {
    /// How far the machine is.
    Progress(ControlProgress),
    /// A remark, with any answer.
    Note(ControlNote),
    /// The answer, in the type of the request: each request has a type of its own.
    Answer(Value),
    /// There is no answer, for this reason.
    Failed(ControlRefusal),
}

impl ControlRequest {
    /// Whether the answer is about all files. Changes by programs on this machine count too, so
    /// they are sent to the server first.
    pub fn counts_all(&self) -> bool {
        match self {
            ControlRequest::Fsck
            | ControlRequest::Leases(_)
            | ControlRequest::Invite(_)
            | ControlRequest::Delegate { .. }
            | ControlRequest::Map(Some(_))
            | ControlRequest::Pin { .. } => true,
            ControlRequest::Shares(request) => !matches!(request, SharesRequest::Discover),
            _ => false,
        }
    }

    /// Whether the request is about this machine, or about its disk. Only a user on this machine
    /// may make it. The other requests are about the whole cluster.
    pub fn is_local(&self) -> bool {
        match self {
            ControlRequest::Status
            | ControlRequest::Live(_)
            | ControlRequest::Fsck
            | ControlRequest::Scrub
            | ControlRequest::Backup(_)
            | ControlRequest::Shares(_) => true,
            ControlRequest::Invite(_)
            | ControlRequest::Invitations
            | ControlRequest::Revoke(_)
            | ControlRequest::Machines
            | ControlRequest::Expel(_)
            | ControlRequest::Leases(_)
            | ControlRequest::Servers
            | ControlRequest::AddServer(_)
            | ControlRequest::RemoveServer(_)
            | ControlRequest::Drain(_)
            | ControlRequest::RenewAuthority
            | ControlRequest::Map(_)
            | ControlRequest::Delegate { .. }
            | ControlRequest::Pin { .. }
            | ControlRequest::Balance { .. }
            | ControlRequest::SwitchBalance(_) => false,
        }
    }
}
