//! The inputs and outputs of the server.

use crate::cluster::registry::Registry;
use crate::rows::machines::{CertificateAuthority, MachineCredential};
use crate::rows::placement::Moved;
use ident::{FileId, ServerId};
use lease::SessionId;
use serde::{Deserialize, Serialize};
use wire::{
    EnrolError, ExpelError, GreetingNumber, HandOver, InviteError, Joint, LogEntry, MachineId, PathLease,
    Refusal, RevokeError, Rights, ShareWork, Space, ToClient, ToServer, Version,
};

/// One input; a Raft log entry holds a batch of inputs and one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "nearly all inputs are messages")]
pub enum Input {
    /// A machine has a new connection. Its session goes on, if it had one that is not over.
    /// Otherwise a session begins, and sessions of the machine's earlier incarnations end at once.
    /// Everything under way over an earlier connection is lost in both directions by agreement:
    /// after this input the host gives no message of an earlier connection of this machine.
    Open {
        /// The machine.
        machine: MachineId,
        /// Counts the machine's starts.
        incarnation: u64,
        /// Which greeting of this start it is. One that comes after a later one changes nothing.
        greeting: GreetingNumber,
        /// The session that the machine had.
        session: Option<SessionId>,
        /// The host's name for the connection, repeated in [`Output::Opened`].
        connection: u64,
        /// The version that is spoken over it.
        version: Version,
    },
    /// A session's message.
    Message {
        /// The session.
        session: SessionId,
        /// The message.
        message: ToServer,
    },
    /// Time has passed, or background work is to go on.
    Tick,
    /// The host's measurement: bytes in all and really free (already less the reserve that deleting
    /// needs).
    Space(Space),
    /// The share server has durably done this work.
    SharesSettled(Vec<ShareWork>),
    /// A leader begins, after a start or an election. It takes every session as just renewed, and
    /// sends again the recalls, flushes and share work that may not have been sent. A new leader
    /// proposes this first.
    Lead,
    /// A machine may join, once, with the secret that `token` is the hash of.
    Invite {
        /// BLAKE3 of the secret: the Raft log does not hold the secret that admits a machine.
        token: [u8; 32],
        /// The rights of the machine.
        rights: Rights,
        /// The time of the invitation: UTC seconds, on the leader's clock. The cluster's own time
        /// stands still while nothing runs.
        at: u64,
        /// The time at which the invitation expires: UTC seconds.
        until: u64,
    },
    /// A machine joins. If the answer was lost, the machine repeats this with the same key and is
    /// answered as before.
    Enrol {
        /// BLAKE3 of the secret that the machine shows.
        token: [u8; 32],
        /// The machine's name.
        name: String,
        /// The machine's public key.
        key: [u8; 32],
        /// The time of the request: UTC seconds, on the leader's clock.
        at: u64,
        /// The host's name for the connection to answer.
        connection: u64,
    },
    /// A machine is to leave the cluster.
    Expel {
        /// The machine.
        machine: MachineId,
    },
    /// The peer of a session has sent bytes that are no message.
    NoMessage {
        /// The session.
        session: SessionId,
    },
    /// The state was restored from a backup. Clients and joined machines may know of later states,
    /// which no longer exist.
    Restored {
        /// The time of the restoration: UTC seconds.
        at: u64,
    },
    /// The cluster's version is raised by one: every member of the server group knows it.
    Raise {
        /// The new version.
        to: Version,
    },
    /// Another authority certifies machines from now on, if its number is the next one.
    Authorize {
        /// The authority's number, from 1 on.
        number: u64,
        /// The authority with its key, which only servers have.
        authority: CertificateAuthority,
    },
    /// A machine has shown a certificate, or has held an authority's key.
    Known {
        /// The machine.
        machine: MachineId,
        /// The machine's key and the number of the authority.
        known: MachineCredential,
        /// Whether the machine is the one that leads.
        itself: bool,
    },
    /// An invitation is revoked: no machine joins by it any more.
    Revoke {
        /// BLAKE3 of the invitation's secret.
        token: [u8; 32],
    },
    /// A region is to be handed over to another server: all files whose identifiers begin with
    /// this one, as far as this server manages them (Farsite §4.1.4).
    Delegate {
        /// The region.
        region: FileId,
        /// The next server.
        to: ServerId,
    },
    /// The hand-over of a region is cancelled, if the region is still here.
    Keep {
        /// The region.
        region: FileId,
    },
    /// A message of another server. The host knows it to be of that server.
    HandOver {
        /// The server.
        from: ServerId,
        /// The message.
        message: HandOver,
    },
    /// A message of another server about a joint operation. The host knows it to be of that server.
    Joint {
        /// The server.
        from: ServerId,
        /// The message.
        message: Box<Joint>,
    },
    /// A message of another server about a path lease. The host knows it to be of that server.
    PathLease {
        /// The server.
        from: ServerId,
        /// The message.
        message: PathLease,
    },
    /// The cluster is to have another server. Only the root server founds one.
    Found {
        /// The host's name for the command, repeated in [`Output::Founded`].
        number: u64,
        /// The member of the server group that is to make the server's first state.
        founder: u64,
    },
    /// The root server's registry of machines, as far as it has changed. Another server takes it if
    /// it continues what that server knows; an old one, or one that comes again, changes nothing.
    Registry(Registry),
    /// No region is to move by itself that contains this file or lies below it, or that is so no
    /// more. Only the root server keeps that.
    Pin {
        /// The file.
        file: FileId,
        /// Whether it is pinned.
        pinned: bool,
    },
    /// A region has moved, or nothing is to be said of it any more. Only the root server keeps
    /// that, for people.
    Moved {
        /// The region.
        region: FileId,
        /// Its move.
        moved: Option<Moved>,
    },
    /// Regions move by themselves to balance the load, or do not. Only the root server keeps that.
    Balance {
        /// Whether they do.
        on: bool,
    },
}

/// An order to the host. Only a leader's outputs leave the process. Those that [rest on the
/// log](Output::rests_on_the_log) wait until all entries so far that
/// [last](crate::Directory::lasts) are durable. Outputs for one session, connection or caller keep
/// their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Answers [`Input::Open`]: from here on the session's messages go over that connection and no
    /// other. `ToClient::Opened` or `ToClient::Resumed` follows.
    Opened {
        /// The machine.
        machine: MachineId,
        /// The machine's start.
        incarnation: u64,
        /// Its session.
        session: SessionId,
        /// The host's name for the connection.
        connection: u64,
    },
    /// Answers [`Input::Open`]: there is no session for this machine. The connection is to end,
    /// whatever certificate the machine shows.
    Refused {
        /// The connection that asked.
        connection: u64,
        /// The reason.
        why: Refusal,
    },
    /// Answers [`Input::Invite`].
    Invited {
        /// The invitation.
        token: [u8; 32],
        /// Success if the invitation holds.
        result: Result<(), InviteError>,
    },
    /// Answers [`Input::Revoke`].
    Revoked {
        /// The invitation.
        token: [u8; 32],
        /// Success if the invitation is gone.
        result: Result<(), RevokeError>,
    },
    /// Answers [`Input::Enrol`].
    Enrolled {
        /// The connection that asked.
        connection: u64,
        /// The machine's number, for its certificate, and its rights.
        result: Result<(MachineId, Rights), EnrolError>,
    },
    /// Answers [`Input::Expel`]: the machine's certificate is refused from now on. Its sessions
    /// receive that they are fenced.
    Expelled {
        /// The machine.
        machine: MachineId,
        /// Success if the machine is expelled.
        result: Result<(), ExpelError>,
    },
    /// Answers [`Input::Raise`]: machines are to greet anew, since the answer to a greeting names
    /// the version by which they decide.
    Raised {
        /// The version now in force.
        version: Version,
    },
    /// Answers [`Input::Authorize`]: machines are to greet anew, since the answer to a greeting
    /// brings their certificates.
    Authorized {
        /// The authority's number.
        number: u64,
        /// Whether the authority was the next one.
        done: bool,
    },
    /// Answers [`Input::Delegate`], once the region has left or is known to stay.
    Delegated {
        /// The region.
        region: FileId,
        /// Success if the region has left.
        result: Result<(), DelegateError>,
    },
    /// A message to another server.
    HandOver {
        /// The server.
        to: ServerId,
        /// The message.
        message: HandOver,
    },
    /// A message to another server about a joint operation.
    Joint {
        /// The server.
        to: ServerId,
        /// The message.
        message: Box<Joint>,
    },
    /// A message to another server about a path lease.
    PathLease {
        /// The server.
        to: ServerId,
        /// The message.
        message: PathLease,
    },
    /// Answers [`Input::Found`].
    Founded {
        /// The host's name for the command.
        number: u64,
        /// The new server.
        result: Result<ServerId, FoundError>,
    },
    /// A message to a client.
    Send {
        /// The session.
        session: SessionId,
        /// The message.
        message: ToClient,
    },
    /// Work for the share server. [`Input::SharesSettled`] confirms it; until then it is given out
    /// again after each restart.
    Shares(Vec<ShareWork>),
    /// A client is about to ask for the result of the last entries. All entries so far are to
    /// become durable, though no client has an answer about them yet. The host does nothing else.
    Sync,
    /// Background work is left (the rows of a dead file, say): give an [`Input::Tick`] soon.
    Again,
}

/// The reason for which a region cannot be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DelegateError {
    /// The root's region stays where the registry of machines is.
    #[error("the root of the name space stays at the root server; delegate a directory in it")]
    Root,
    /// The region is this server's already.
    #[error("the region is at that server already")]
    SameServer,
    /// The region is handed over just now.
    #[error("the region is being handed over already; wait for that, or cancel it")]
    Moves,
    /// Another server manages the region.
    #[error("another server manages the region; ask that one")]
    NotHere,
    /// A file of the region is open, locked or about to go, or a machine has not released it.
    #[error("a file in it is open or locked, or a machine that is away has something of it")]
    InUse,
    /// There is no such file. A client may be about to make it, in a directory that stays here.
    #[error("there is no such file (yet); a region begins at a file")]
    NoFile,
    /// The hand-over was cancelled.
    #[error("the hand-over was cancelled")]
    Kept,
    /// The other server does not take the region.
    #[error("the other server does not take the region; it knows a later hand-over")]
    Declined,
    /// The other server has not answered for a while.
    #[error("the other server does not answer")]
    Silent,
    /// Parts of the region have a standing of their own.
    #[error("parts of the region were delegated by themselves; hand those back first")]
    HasRegions,
}

/// Servers beside the root server, at most.
pub const SERVERS_MAX: u16 = 1024;

/// Why no server is founded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum FoundError {
    /// Another server was asked.
    #[error("only the root server founds others, and this is another")]
    NotTheRoot,
    /// The cluster has all the servers that it can have.
    #[error("the cluster has as many servers as it can have, which are {SERVERS_MAX} beside the root server")]
    TooMany,
}

impl Input {
    /// Whether a machine with a member of one server may have another server propose it: the
    /// messages of servers to each other, and what is asked and told of regions.
    pub fn may_be_passed_on(&self) -> bool {
        matches!(
            self,
            Input::HandOver { .. }
                | Input::Joint { .. }
                | Input::PathLease { .. }
                | Input::Delegate { .. }
                | Input::Keep { .. }
                | Input::Moved { .. }
        )
    }

    /// Whether the input is a question, or says that nothing is pending. If such an input is lost,
    /// the client repeats it over the next connection. A crash may take its other results, beside
    /// rows and answers: a place in the queue, a renewed term, how far a log has come.
    pub(crate) fn asks(&self) -> bool {
        let Input::Message { message, .. } = self else { return false };
        match message {
            ToServer::Ask { .. } | ToServer::Renew => true,
            ToServer::Log { entries, .. } => {
                let flushed =
                    |it: &LogEntry| matches!(it, LogEntry::Flushed { .. } | LogEntry::WritesThrough { .. });
                entries.iter().all(flushed)
            }
            _ => false,
        }
    }
}

impl Output {
    /// Whether the output reports no more than rows say.
    pub(crate) fn tells_of_rows(&self) -> bool {
        !self.rests_on_the_log() || matches!(self, Output::Send { message: ToClient::Reported { .. }, .. })
    }

    /// Whether the recipient may rely on the entries before this output being durable. If not, a
    /// crash leaves the output as good as unsent. The recipient of a recall, a flush or a `Heard`
    /// gains nothing by it, and a client may release leases unasked. After a crash a client repeats
    /// the log that the server had heard, and the server asks for it before it reports any of it.
    pub fn rests_on_the_log(&self) -> bool {
        let says_nothing = |message: &ToClient| {
            matches!(
                message,
                ToClient::Flush { .. }
                    | ToClient::WriteThrough { .. }
                    | ToClient::Heard { .. }
                    | ToClient::Recall { .. }
                    | ToClient::Renewed { .. }
            )
        };
        !matches!(self, Output::Again)
            && !matches!(self, Output::Send { message, .. } if says_nothing(message))
    }
}
