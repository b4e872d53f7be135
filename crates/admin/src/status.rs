//! The work of a machine and its server at present.

use crate::checks::ScrubReport;
use file_service::ActivityReport;
use net::{LinkDown, RoundTripReport};
use serde::{Deserialize, Serialize};
use wire::ShareStanding;

/// A machine's work at present.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatusReport {
    /// Always true in an answer.
    pub up: bool,
    /// The program's version.
    pub version: String,
    /// The machine's number in the cluster.
    pub machine: u64,
    /// Its name; empty where only a server knows that.
    pub name: String,
    /// Its part in the cluster.
    pub role: Role,
    /// The name of the server that leads, if this machine is a server and knows it.
    pub leader: Option<String>,
    /// The data directory.
    pub data: String,
    /// Where the file system appears.
    pub mounted_on: Option<String>,
    /// The process.
    pub process: u32,
    /// How long it has been up, seconds.
    pub uptime_s: u64,
    /// Files that this machine's client has metadata of.
    pub files_known: usize,
    /// Content that is not stored yet, bytes.
    pub dirty_bytes: usize,
    /// Operations that the server has not acknowledged.
    pub operations_unsent: usize,
    /// Calls of programs that wait, the oldest first.
    pub calls_waiting: Vec<CallReport>,
    /// Salvages that are kept: `leasehold salvage list`.
    pub salvaged: usize,
    /// The servers list this machine as one of them, and its server does not run.
    pub lacks_server: bool,
    /// Quarantined data of servers on this machine.
    pub quarantined: Vec<String>,
    /// Where others are likely to reach this machine's server.
    pub listens: Vec<String>,
    /// The connection to the server, of a machine without one.
    pub link: Option<LinkReport>,
    /// The server, of the machine that has it.
    #[serde(flatten)]
    pub server: Option<ServerReport>,
}

/// A machine's part in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It has no server.
    Client,
    /// Its server follows another's.
    Follower,
    /// Its server leads.
    Leader,
}

/// A program's call that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallReport {
    /// The operation that was called.
    pub call: String,
    /// For how long it has waited, ms.
    pub for_ms: u64,
    /// The reason for which it waits.
    pub waits_for: CallWait,
}

/// The reason for which a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallWait {
    /// The connection to the server is down.
    Connection,
    /// Another machine waits for the file's content, which goes first.
    ContentRelease,
    /// The work of this machine is to be stored at the server.
    Storing,
    /// The disk is full.
    Space,
    /// The server is to answer, or another machine that has to release leases first.
    Server,
}

/// The data of `leasehold top` and of the metrics.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LiveReport {
    /// The machine's work at present.
    pub status: StatusReport,
    /// Its client's leases and recalls.
    pub client: ClientReport,
    /// The operations at its front door.
    pub activity: ActivityReport,
    /// Round trips to the machines that it is connected to.
    pub round_trips: Vec<RoundTripReport>,
}

/// A client's leases and recalls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientReport {
    /// Leases that it holds.
    pub leases: usize,
    /// Recalls that it has received.
    pub recalls_received: u64,
}

/// A connection to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Where the server is.
    pub server: String,
    /// How long the connection has been up, or down, seconds.
    pub since_s: u64,
    /// Why it is down; up if absent.
    pub down: Option<LinkDown>,
}

/// A server's work at present.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerReport {
    /// Which versions are in use.
    pub version_in_use: VersionReport,
    /// Files in the file system.
    pub files: u64,
    /// Sessions of clients at this server, lapsed ones included.
    pub sessions: usize,
    /// Lapsed sessions: they keep their leases until another machine needs these.
    pub sessions_lapsed: usize,
    /// Pending requests for leases.
    pub requests_waiting: usize,
    /// Machines that have not answered a recall.
    pub unresponsive: Vec<UnresponsiveReport>,
    /// Bytes of the disk.
    pub space_total: u64,
    /// Free bytes.
    pub space_free: u64,
    /// Index of the last applied log entry.
    pub applied: u64,
    /// Log that a start would replay, bytes.
    pub log_bytes: u64,
    /// How often the log was made durable since the start: one fdatasync each.
    pub log_flushes: u64,
    /// Bytes proposed and not applied yet.
    pub backlog_bytes: usize,
    /// Bytes of the server's rows on disk.
    pub store_bytes: u64,
    /// Flipped bits that were found in them, and repaired, since the start.
    pub store_repaired: u64,
    /// The disk is full: rows wait in memory and in the log until there is room.
    pub disk_full: bool,
    /// How the scrub stands. `None`: the database of shares cannot be read.
    pub scrub: Option<ScrubReport>,
    /// Stored shares. `None`: their database cannot be read.
    pub shares: Option<u64>,
    /// Bytes of the stored shares, if these are known.
    pub share_bytes: Option<u64>,
    /// The hosts of shares.
    pub hosts: Vec<HostReport>,
    /// Advice that would make the cluster safer.
    pub hint: Option<Hint>,
    /// Messages since the start.
    #[serde(flatten)]
    pub traffic: TrafficReport,
}

/// A machine that has not answered a recall.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnresponsiveReport {
    /// Its name.
    pub name: String,
    /// For how long, ms.
    pub unanswered_ms: u64,
}

/// Advice to the people who run a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Hint {
    /// There are enough machines for three servers, of which any one may die.
    AddServers {
        /// The machines that there are.
        machines: usize,
        /// The servers that there are.
        servers: usize,
    },
}

/// A host of shares.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostReport {
    /// Its number.
    pub machine: u64,
    /// How its copies stand; nothing if it does not answer.
    pub copies: Option<ShareStanding>,
}

/// The versions in use, as `leasehold status` shows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionReport {
    /// The cluster's version.
    pub cluster: u16,
    /// The newest version that this server knows.
    pub known: u16,
    /// Machines, by name, that may still speak an older one than the cluster's.
    pub older: Vec<String>,
    /// The reasons why the version is not raised, if this server knows a newer one. Only the leader
    /// knows them.
    pub waits_for: Vec<VersionWait>,
}

/// A reason why the cluster's version is not raised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum VersionWait {
    /// A server is away, and may come back with an older program.
    ServerAway {
        /// Its name.
        server: String,
    },
    /// A server knows no newer version than this, or is held to it.
    ServerOlder {
        /// Its name.
        server: String,
        /// The newest version that it speaks.
        speaks: u16,
    },
    /// A machine may still speak an older version than the cluster's.
    MachineOlder {
        /// Its name.
        machine: String,
    },
}

/// Messages of all sessions so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficReport {
    /// From clients.
    pub messages_heard: u64,
    /// To clients.
    pub messages_told: u64,
    /// The recalls among them.
    pub recalls: u64,
}
