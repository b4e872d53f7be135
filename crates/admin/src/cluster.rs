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
    /// How it stands.
    #[serde(flatten)]
    pub standing: MachineStanding,
    /// Whether it was expelled.
    pub expelled: bool,
    /// Whether it has a session.
    pub session: bool,
    /// Whether the server has not heard from it for its term.
    pub lapsed: bool,
    /// The time for which it has left a recall unanswered, ms.
    pub unanswered_ms: Option<u64>,
}

/// How a machine of the cluster stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "standing", rename_all = "snake_case")]
pub enum MachineStanding {
    /// It was expelled.
    Expelled,
    /// It has no session.
    NotConnected,
    /// Its session has lapsed.
    Lapsed {
        /// How long ago it was last heard of, ms.
        heard_ms: u64,
    },
    /// Its session is in use.
    Up {
        /// How long ago it was last heard of, ms.
        heard_ms: u64,
    },
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
    /// The label, attribute or mode, if the field is that of one.
    pub of: Option<String>,
    /// The machine.
    pub machine: String,
    /// The lease or the wait.
    #[serde(flatten)]
    pub standing: LeaseStanding,
    /// The time that the last recall of the field took, ms.
    pub last_recall_ms: Option<u64>,
}

/// The relation of a machine to a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "standing", rename_all = "snake_case")]
pub enum LeaseStanding {
    /// It holds a lease.
    Holds {
        /// The right that the lease gives.
        lease: LeaseRight,
        /// How long the lease lasts at least without a renewal, ms.
        left_ms: u64,
    },
    /// Its lease was recalled, and it has not answered.
    Recalled {
        /// The right that it may keep; none if absent.
        keep: Option<LeaseRight>,
        /// How long ago that was, ms.
        for_ms: u64,
    },
    /// It waits for a lease.
    Waits {
        /// The right that the lease is to give.
        lease: LeaseRight,
        /// How long it has waited, ms.
        for_ms: u64,
    },
    /// It holds all labels, or attributes, but this one.
    Excluded,
}

/// The right that a lease gives. A black box has leases of its own (BlackBox §4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseRight {
    /// To know the value.
    Read,
    /// To move the value forward without knowing it.
    Touch,
    /// To know the value and to change it.
    Write,
    /// Of a black box: to know the aggregate of the others' values.
    OtherRead,
    /// Of a black box: to change its own value.
    SelfWrite,
    /// Of a black box: both.
    SelfWriteAndOtherRead,
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
    /// Whether it keeps shares.
    #[serde(flatten)]
    pub keeping: ContentKeeping,
    /// Log entries that it lacks.
    pub behind: Option<u64>,
    /// How long ago it was last heard of, ms.
    pub heard_ms: Option<u64>,
    /// Whether its machine is up without it: the machine's client was heard of since.
    pub machine_up: bool,
    /// The newest version that it speaks with the leader.
    pub speaks: Option<u16>,
}

/// Whether a server keeps shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "keeping", rename_all = "snake_case")]
pub enum ContentKeeping {
    /// It keeps some.
    Keeps {
        /// Its weight among other servers, GiB, once that is known.
        weight_gib: Option<u32>,
    },
    /// It has not been heard of for long: others keep its shares until it is back.
    Away,
    /// Its shares are being moved to others.
    Drains,
}

/// The authority that certifies machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityReport {
    /// Its number. Each renewal takes the next.
    pub authority: u64,
}
