//! The cluster as people see it: machines, invitations, servers, and the leases on a file.

use serde::{Deserialize, Serialize};
use wire::MachineId;

/// An invitation to make: the machine's rights, and the way to the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// The path of the machine's root directory, from the root of all; all of it if empty.
    pub path: String,
    /// The machine may only read.
    pub read_only: bool,
    /// All its users count as this one.
    pub squash: Option<u32>,
    /// The time for which the token is good, seconds.
    pub good_for_s: u64,
    /// The addresses that the machine is to call, `host:port`; this machine's own if empty.
    pub addresses: Vec<String>,
}

/// The rights of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RightsReport {
    /// The path of the directory that the machine sees as its root, from the root of all.
    pub path: String,
    /// The machine only reads.
    pub read_only: bool,
    /// All its users count as this one.
    pub squash: Option<u32>,
}

/// An invitation by which no machine has joined yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InvitationReport {
    /// Names the invitation, and is no secret.
    pub id: String,
    /// The rights of the machine that joins.
    pub rights: RightsReport,
    /// The end of its validity, UTC seconds.
    pub until: u64,
    /// The end has passed.
    pub expired: bool,
}

/// A token to join with, and its invitation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invited {
    /// The secret: its bearer can join, once.
    pub token: String,
    /// The invitation, as `leasehold invitations list` shows it.
    #[serde(flatten)]
    pub invitation: InvitationReport,
}

/// A machine of the cluster to which an order applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineName {
    /// Its number.
    pub machine: u64,
    /// Its name.
    pub name: String,
}

impl MachineName {
    /// Its number, in its type.
    pub fn id(&self) -> MachineId {
        MachineId(self.machine)
    }
}

/// A machine of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineReport {
    /// Its number.
    pub machine: u64,
    /// Its name.
    pub name: String,
    /// Its rights.
    pub rights: RightsReport,
    /// How its session stands, in words.
    pub standing: String,
    /// Whether it was expelled.
    pub expelled: bool,
    /// Whether it has a session.
    pub session: bool,
    /// Whether the server has not heard from it for its term.
    pub lapsed: bool,
    /// The time for which it has left a recall unanswered, ms.
    pub unanswered_ms: Option<u64>,
}

/// The leases, and the waits for them, on the fields of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLeases {
    /// The file.
    pub file: String,
    /// One line for each machine and field.
    pub leases: Vec<LeaseLine>,
}

/// A machine's lease on a field, or its wait for one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseLine {
    /// The field.
    pub field: String,
    /// The machine.
    pub machine: String,
    /// The lease or the wait, in words.
    pub standing: String,
    /// The time that the last recall of the field took, ms.
    pub last_recall_ms: Option<u64>,
}

/// A server, as the leader knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStanding {
    /// The machine's number.
    pub machine: u64,
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub addresses: Vec<String>,
    /// Whether it leads.
    pub leads: bool,
    /// Whether it votes. Otherwise it follows, and votes once it makes an odd number with other
    /// followers.
    pub votes: bool,
    /// Whether it keeps shares, in words.
    pub keeping: String,
    /// Log entries that it lacks.
    pub behind: Option<u64>,
    /// How long ago it was last heard of, ms.
    pub heard_ms: Option<u64>,
    /// The newest version that it speaks with the leader.
    pub speaks: Option<u16>,
}

/// The authority that certifies machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityReport {
    /// Its number. Each renewal takes the next.
    pub authority: u64,
}
