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
            ControlRequest::Fsck | ControlRequest::Leases(_) | ControlRequest::Invite(_) => true,
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
            | ControlRequest::RenewAuthority => false,
        }
    }
}
