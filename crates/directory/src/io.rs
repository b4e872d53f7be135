//! What the host gives the server and takes from it.

use crate::certification::{CertificateAuthority, Known};
use lease::SessionId;
use namespace::ShareId;
use serde::{Deserialize, Serialize};
use wire::{
    EnrolError, ExpelError, InviteError, LogEntry, MachineId, Refusal, RevokeError, Rights, Space, ToClient,
    ToServer, Version,
};

/// The ordered rows that hold the server's state. The host makes them durable together with the
/// index of the last applied log entry; a store that can no longer read or write stops the server
/// (a wrong server is worse than a stopped one), so nothing here fails.
pub trait Store {
    /// The value at `key`.
    fn get(&self, key: &[u8]) -> Option<Vec<u8>>;
    /// Sets `key`.
    fn put(&mut self, key: &[u8], value: Vec<u8>);
    /// Removes `key`, if it is there.
    fn delete(&mut self, key: &[u8]);
    /// Shows `visit` the rows with `start <= key < end` in order, for as long as it says true. It
    /// must not ask the store meanwhile.
    fn walk(&self, start: &[u8], end: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool);

    /// The first `limit` rows with `start <= key < end`, in order.
    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut rows = Vec::new();
        if limit > 0 {
            self.walk(start, end, &mut |key, value| {
                rows.push((key.to_vec(), value.to_vec()));
                rows.len() < limit
            });
        }
        rows
    }
}

/// One input; a log entry holds a batch of them and one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant, reason = "nearly all inputs are messages")]
pub enum Input {
    /// A machine has a new connection: its session goes on, if it had one that is not over;
    /// otherwise one begins, and sessions of its earlier incarnations end at once. Whatever was
    /// under way over an earlier connection is lost in both directions by agreement: the host gives
    /// no message of an earlier connection of this machine after this.
    Open {
        /// The machine.
        machine: MachineId,
        /// Counts the machine's starts.
        incarnation: u64,
        /// The session that it had.
        session: Option<SessionId>,
        /// The host's name for the connection, given back in [`Output::Opened`].
        connection: u64,
        /// The version that is spoken over it.
        version: Version,
    },
    /// A session's message.
    Message {
        /// Whose.
        session: SessionId,
        /// What.
        message: ToServer,
    },
    /// Time has passed, or background work is to go on.
    Tick,
    /// What the host measured: bytes in all and really free (already less the reserve that deleting
    /// needs).
    Space(Space),
    /// The share server has durably done this work.
    SharesSettled(Vec<ShareWork>),
    /// A leader begins, after a start or an election: it takes every session as just renewed, and
    /// sends again what may not have been sent (recalls, flushes, share work). To be proposed first
    /// of all.
    Lead,
    /// A machine may join, once, with the secret that `token` is the hash of.
    Invite {
        /// BLAKE3 of the secret: the log does not say what lets a machine in.
        token: [u8; 32],
        /// What the machine may do.
        rights: Rights,
        /// When: UTC seconds, as the leader's clock shows. The cluster's own time stands still
        /// while nothing runs.
        at: u64,
        /// Until when: UTC seconds.
        until: u64,
    },
    /// A machine joins. Once more with the same key, since the answer was lost: then it is answered
    /// as before.
    Enrol {
        /// BLAKE3 of the secret that it shows.
        token: [u8; 32],
        /// What it is called.
        name: String,
        /// Its public key.
        key: [u8; 32],
        /// When: UTC seconds, as the leader's clock shows.
        at: u64,
        /// The host's name for whom to answer.
        connection: u64,
    },
    /// A machine is to belong to the cluster no more.
    Expel {
        /// Which.
        machine: MachineId,
    },
    /// A session's peer has sent something that is no message.
    NoMessage {
        /// Whose.
        session: SessionId,
    },
    /// The state was restored from a backup: clients, and machines that joined, may know of later
    /// states, which are no more.
    Restored {
        /// When: UTC seconds.
        at: u64,
    },
    /// The cluster's version is raised by one: every member of the server group knows it.
    Raise {
        /// To this.
        to: Version,
    },
    /// Another authority certifies machines from now on, if its number is the next one.
    Authorize {
        /// Its number, from 1 on.
        number: u64,
        /// With its key, which only servers have.
        authority: CertificateAuthority,
    },
    /// A machine has shown a certificate, or has had an authority's key.
    Known {
        /// The machine.
        machine: MachineId,
        /// With which key, and of which authority.
        known: Known,
        /// It is the machine that leads.
        itself: bool,
    },
    /// Nobody is to join by this invitation any more.
    Revoke {
        /// BLAKE3 of its secret.
        token: [u8; 32],
    },
}

/// What is to be done about a share's lease for this server's account. Idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ShareWork {
    /// A reference was published: lease it for the server's account, then let go the uploader's
    /// lease.
    Adopt(ShareId),
    /// The last reference is gone: let go all leases on it.
    Drop(ShareId),
}

/// What the host is to do. Only a leader's outputs leave the process, and those that [rest on the
/// log](Output::rests_on_the_log) not before all its entries so far that
/// [last](crate::Directory::lasts) are durable. Outputs for one session, connection or caller keep
/// their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Answers [`Input::Open`]: from here on what is sent in the session goes over that connection
    /// and no other. `ToClient::Opened` or `ToClient::Resumed` follows.
    Opened {
        /// The machine.
        machine: MachineId,
        /// Which of its starts.
        incarnation: u64,
        /// Its session.
        session: SessionId,
        /// The host's name for the connection.
        connection: u64,
    },
    /// Answers [`Input::Open`]: there is no session for this machine. Whatever certificate it
    /// shows, the connection is to end.
    Refused {
        /// The connection that asked.
        connection: u64,
        /// Why not.
        why: Refusal,
    },
    /// Answers [`Input::Invite`].
    Invited {
        /// The invitation.
        token: [u8; 32],
        /// Whether it holds.
        result: Result<(), InviteError>,
    },
    /// Answers [`Input::Revoke`].
    Revoked {
        /// The invitation.
        token: [u8; 32],
        /// Whether it is gone.
        result: Result<(), RevokeError>,
    },
    /// Answers [`Input::Enrol`].
    Enrolled {
        /// Who asked.
        connection: u64,
        /// The machine's number, which its certificate is to say, and what it may do.
        result: Result<(MachineId, Rights), EnrolError>,
    },
    /// Answers [`Input::Expel`]: its certificate is refused from now on. Its sessions are told that
    /// they are fenced.
    Expelled {
        /// The machine.
        machine: MachineId,
        /// Whether it was.
        result: Result<(), ExpelError>,
    },
    /// Answers [`Input::Raise`]: machines are to greet anew, since with the answer they are told by
    /// which version they decide.
    Raised {
        /// What the version is now.
        version: Version,
    },
    /// Answers [`Input::Authorize`]: machines are to greet anew, since in answer to that they are
    /// given certificates.
    Authorized {
        /// The authority's number.
        number: u64,
        /// Whether it was the next one.
        done: bool,
    },
    /// To a client.
    Send {
        /// Whose session.
        session: SessionId,
        /// What.
        message: ToClient,
    },
    /// To the share server; confirmed by [`Input::SharesSettled`], given out again after a restart
    /// until then.
    Shares(Vec<ShareWork>),
    /// Somebody is about to ask for what was done: all entries so far are to be durable then,
    /// though nobody is told of them yet. Nothing else is to be done.
    Sync,
    /// Background work (the rows of a dead file, say) is left: give a [`Input::Tick`] soon.
    Again,
}

impl Input {
    /// Whether it is a question, or says that nothing is pending: lost, it is said again over the
    /// next connection, and what it came to beside rows and answers (a place in the queue, a term
    /// begun anew, how far a log has come) is what a crash may take.
    pub(crate) fn asks(&self) -> bool {
        let Input::Message { message, .. } = self else { return false };
        match message {
            ToServer::Ask { .. } | ToServer::Renew => true,
            ToServer::Log { entries, .. } => {
                let flushed =
                    |it: &LogEntry| matches!(it, LogEntry::Flushed { .. } | LogEntry::FlushedThrough { .. });
                entries.iter().all(flushed)
            }
            _ => false,
        }
    }
}

impl Output {
    /// Whether it tells at most what rows say.
    pub(crate) fn tells_of_rows(&self) -> bool {
        !self.rests_on_the_log() || matches!(self, Output::Send { message: ToClient::Reported { .. }, .. })
    }

    /// Whether who gets this may count on what came before being durable. Else it is as good as
    /// unsaid if the server crashes: who was asked to flush or to let go, or was told that it was
    /// heard of, holds nothing by that, and what it lets go it may let go unasked. What was heard
    /// of a log its client says again, and is asked for before anybody else is told of it.
    pub fn rests_on_the_log(&self) -> bool {
        let says_nothing = |message: &ToClient| {
            matches!(
                message,
                ToClient::Flush { .. }
                    | ToClient::FlushThrough { .. }
                    | ToClient::Heard { .. }
                    | ToClient::Recall { .. }
                    | ToClient::Renewed { .. }
            )
        };
        !matches!(self, Output::Again)
            && !matches!(self, Output::Send { message, .. } if says_nothing(message))
    }
}
