//! The rights of a machine, and the errors of joining.

use crate::{MachineId, Version};
use ident::FileId;
use namespace::{Cred, Operation, operation};
use serde::{Deserialize, Serialize};

/// The longest name of a machine, in bytes.
pub const MACHINE_NAME_BYTES_MAX: usize = 64;

/// The rights of a machine, fixed by its invitation. The server enforces them when it grants and
/// when it replays. The client knows them so that it need not ask (docs/internals/security.md).
///
/// Within these rights the machine says which user asks, as with NFS and CephFS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// The directory that is the machine's root: nothing outside it exists for this machine.
    pub root: FileId,
    /// Whether the machine may change nothing.
    pub read_only: bool,
    /// All users of the machine count as this one (and as the group of the same number).
    pub squash: Option<u32>,
}

impl Rights {
    /// The rights of the machine that made the cluster: everything.
    pub const FULL: Rights = Rights { root: FileId::root(), read_only: false, squash: None };

    /// Whether the rights cover a part of the file system only.
    pub fn are_of_subtree(&self) -> bool {
        self.root != FileId::root()
    }

    /// Whether the rights restrict nothing.
    pub fn are_full(&self) -> bool {
        *self == Rights::FULL
    }

    /// The credentials under which a user of the machine counts. Users who count as one have no
    /// groups or capabilities of their own.
    pub fn cred(&self, cred: &Cred) -> Cred {
        match self.squash {
            Some(id) => Cred { uid: id, gid: id, ..Cred::default() },
            None => cred.clone(),
        }
    }

    /// Whether the credentials in `operation` are those that users of the machine count as. For
    /// operations without credentials the leases decide. An operation that asks for no permission
    /// may come from any user.
    pub fn admit_user_of(&self, operation: &Operation) -> bool {
        matches!(
            operation,
            Operation::Access(operation::Access { mask: 0, .. })
                | Operation::Open(operation::Open { mask: 0, .. })
        ) || operation.cred().is_none_or(|cred| self.squash.is_none() || *cred == self.cred(cred))
    }
}

/// Why a machine could not be enrolled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum EnrolError {
    /// There is no such invitation, or it is forgotten.
    #[error("this token is of no invitation to this cluster: ask for one, `leasehold invite` prints it")]
    UnknownToken,
    /// The token was used by another machine. An invitation is for one machine, which is known by
    /// its key.
    #[error("this token was used: each is for one machine, once; `leasehold invite` prints another")]
    UsedToken,
    /// The invitation has expired.
    #[error("this token has expired; `leasehold invite` prints another")]
    ExpiredToken,
    /// The string is no valid name.
    #[error(
        "a machine's name has 1 to {MACHINE_NAME_BYTES_MAX} letters, digits, dots, hyphens or underscores, and is no number: choose another with --name"
    )]
    BadName,
    /// Another machine has the name.
    #[error(
        "a machine of this name has joined already: choose another with --name, or `leasehold expel` it if it is gone for good"
    )]
    NameTaken,
    /// The cluster has all the machines that it can have.
    #[error(
        "the cluster has as many machines as it can have: `leasehold machines` lists them, `leasehold expel` removes one"
    )]
    TooMany,
    /// The directory that the invitation was for is gone.
    #[error("the directory that this invitation was for is gone: `leasehold invite` for another")]
    RootGone,
    /// Another server was asked.
    #[error("only the root server keeps the register of machines, and this is another")]
    NotTheRoot,
}

/// Why a machine cannot be invited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum InviteError {
    /// The token is taken. Tokens are random, so this is the same request twice.
    #[error("this token was given out already")]
    TokenTaken,
    /// The root is no directory; rights begin at one.
    #[error("that is no directory: what a machine is invited to is one")]
    NotADirectory,
    /// Too many invitations are open.
    #[error("too many invitations are open: wait until some have expired")]
    TooMany,
    /// Another server was asked.
    #[error("only the root server keeps the register of machines, and this is another")]
    NotTheRoot,
}

/// Why an invitation cannot be revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum RevokeError {
    /// No invitation has this token.
    #[error("there is no such invitation")]
    Unknown,
    /// A machine has joined by it.
    #[error("machine {} has joined by this invitation: leasehold expel {} puts it out", .0.0, .0.0)]
    Used(MachineId),
    /// Another server was asked.
    #[error("only the root server keeps the register of machines, and this is another")]
    NotTheRoot,
}

/// Why a machine cannot be expelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ExpelError {
    /// No machine has this number.
    #[error("there is no such machine")]
    Unknown,
    /// It was expelled before.
    #[error("the machine has been expelled already")]
    Expelled,
    /// Another server was asked.
    #[error("only the root server keeps the register of machines, and this is another")]
    NotTheRoot,
}

/// Why a machine gets no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The machine never joined, or is forgotten.
    #[error("machine {} is not of this cluster: join it with `leasehold join`", .0.0)]
    Unknown(MachineId),
    /// The machine was expelled.
    #[error("machine {} was expelled from this cluster: what it had not got applied is kept (leasehold salvage list); to come back it leaves (leasehold leave) and joins as a new machine", .0.0)]
    Expelled(MachineId),
    /// The machine speaks only versions that the cluster has dropped, since all its machines knew a
    /// newer one.
    #[error(
        "this machine's leasehold is too old: it speaks version {speaks}, and the cluster none before {oldest}, since all its machines knew that; install a newer one here"
    )]
    TooOld {
        /// The version that the machine speaks.
        speaks: Version,
        /// The oldest version that is spoken.
        oldest: Version,
    },
}
