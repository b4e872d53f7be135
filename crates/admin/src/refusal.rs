//! The reasons why a machine does not answer a request. The command line has the words.

use serde::{Deserialize, Serialize};
use wire::{ExpelError, InviteError, RevokeError};

/// Why a machine does not answer a request. Machines, paths and accounts are as the request names
/// them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ControlRefusal {
    /// The machine has no server, and only a server can answer.
    NoServer,
    /// The machine's server has ended since the request.
    ServerGone,
    /// The server has lost what it had since the request.
    ServerEnded,
    /// The machine stops.
    Stopping,
    /// Another server passes on a request that only a user on this machine may make.
    OnlyHere,
    /// Another server passes on a request, and this one does not lead.
    AnotherLeads,
    /// This server has lost the lead while it waited for a machine to serve.
    LeadLostAdding,
    /// This server has lost the lead while it drained another.
    LeadLostDraining,
    /// The machine does not listen for others.
    NotListening,
    /// There is no directory at the path.
    NoDirectory {
        /// The path.
        path: String,
    },
    /// There is no file at the path.
    NoFile {
        /// The path.
        path: String,
    },
    /// No machine has the name or number.
    NoMachine {
        /// The name or number.
        machine: String,
    },
    /// No invitation that is open has the name.
    NoInvitation {
        /// The name.
        id: String,
    },
    /// The directory does not invite.
    Invite {
        /// Its reason.
        why: InviteError,
    },
    /// The directory does not revoke the invitation.
    Revoke {
        /// Its reason.
        why: RevokeError,
    },
    /// The directory does not expel the machine.
    Expel {
        /// Its reason.
        why: ExpelError,
    },
    /// The directory has not answered in time.
    DirectorySilent {
        /// The time that it had, seconds.
        within_s: u64,
    },
    /// The directory has not answered in time to a new authority.
    AuthorityUnanswered,
    /// The server has just begun and knows no authority yet.
    JustBegun,
    /// The authority was renewed by another request at the same time.
    RenewedMeanwhile,
    /// The machine to be expelled is a server.
    IsServer {
        /// The machine.
        machine: String,
    },
    /// The machine that is to serve is a server already.
    ServesAlready {
        /// The machine.
        machine: String,
    },
    /// The machine that is to serve has not begun to in time.
    DoesNotServe {
        /// The machine.
        machine: String,
    },
    /// The machine is no server.
    NotServer {
        /// The machine.
        machine: String,
    },
    /// The only server cannot be removed.
    OnlyServer,
    /// The only server that keeps content cannot be drained.
    OnlyKeeper,
    /// The directory has no server of this number.
    NoSuchServer {
        /// The number.
        server: u16,
    },
    /// A server of the directory has no leader, or fewer voters than the root server.
    ServerNotReady {
        /// Its number.
        server: u16,
    },
    /// A region was not handed over in time, and stays where it is.
    RegionStays {
        /// The path at which it begins.
        path: String,
    },
    /// The file is not pinned.
    NotPinned {
        /// Its path.
        path: String,
    },
    /// The machine that is to be no server any more leads. Another will in a moment, and must be
    /// asked then.
    LeadsYet {
        /// The machine.
        machine: String,
    },
    /// Servers of the directory still have a member on the machine, without which they might have
    /// no majority.
    ServersStay {
        /// The machine.
        machine: String,
    },
    /// The text is no key.
    NoKey {
        /// The text.
        key: String,
    },
    /// No account of a key has the name or key.
    NoAccount {
        /// The name or key.
        account: String,
    },
    /// The text is no name of a share, and paths cannot be looked up in a machine that is down.
    NoShare {
        /// The text.
        name: String,
    },
    /// The text is neither the name of a share nor the path of a file.
    NoShareOrFile {
        /// The text.
        name: String,
    },
    /// The data directory has no shares.
    NoShares {
        /// The data directory.
        data: String,
    },
    /// The file to be written is there already.
    Exists {
        /// The file.
        file: String,
    },
    /// A file cannot be read or written.
    File {
        /// The file.
        file: String,
        /// The error.
        why: String,
    },
    /// The disk has no room for shares.
    DiskFull,
    /// A part of the machine reports an error of its own.
    Failed {
        /// The work that failed.
        doing: RequestWork,
        /// The error, with its causes.
        why: String,
    },
}

/// The work on a request that may fail with an error of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestWork {
    /// Reading the request.
    Reading,
    /// Writing the answer as JSON.
    Answering,
    /// Asking the server that leads.
    AskingLeader,
    /// Asking the machine for what the cluster knows.
    AskingMachine,
    /// Listening for other machines.
    Listening,
    /// Making a token.
    MakingToken,
    /// Certifying machines.
    Certifying,
    /// Changing the servers.
    ChangingServers,
    /// Making another server of the directory.
    FoundingServer,
    /// Handing a region over.
    Delegating,
    /// Reading everything.
    Scrubbing,
    /// Making a backup.
    BackingUp,
    /// Reading or changing what the share server has.
    UsingShares,
    /// Making a key's account.
    MakingAccount,
}
