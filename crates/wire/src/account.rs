//! What an account that is an Ed25519 key asks of a share server. A machine carries it, as it is;
//! that the account asks it, its signature says, which is for one store and is good once.

use namespace::ShareId;
use serde::{Deserialize, Serialize};

/// A signed request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRequest {
    /// The account: the public half of its key.
    pub key: [u8; 32],
    /// Larger than in any earlier request of this account to this store; the time will do, in
    /// nanoseconds.
    pub nonce: u64,
    /// Both halves of the signature.
    pub signature: ([u8; 32], [u8; 32]),
    /// An [`AccountCall`], as it was signed.
    pub call: Vec<u8>,
}

/// What is asked. Reading needs no account: whoever knows the name of a share may read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccountCall {
    /// Store the body as these shares, with a lease on each; answered by [`AccountAnswer::Held`]
    /// when all are durable, or nothing is stored. Letting go of them again is how it is taken
    /// back.
    Store {
        /// Which, and of how many bytes each.
        shares: Vec<(ShareId, u32)>,
        /// BLAKE3 of the body, which is not in what is signed.
        body: [u8; 32],
    },
    /// Take or renew the account's lease on each; [`AccountAnswer::Held`] says which are leased
    /// now.
    Lease(Vec<ShareId>),
    /// Let go of the account's leases on these. What nobody else holds goes at once.
    LetGo(Vec<ShareId>),
    /// The first shares after this one that the account has leased, in order.
    List(Option<ShareId>),
    /// What it has leased, and may.
    Usage,
}

/// Answers an [`AccountRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccountAnswer {
    /// Nothing was done.
    Refused(AccountRefusal),
    /// These are leased, and sound.
    Held {
        /// Which.
        shares: Vec<ShareId>,
        /// When the leases end, UTC seconds, if leases of such accounts end at all.
        until: u64,
    },
    /// Done.
    Done,
    /// Some of what is leased; that was all if there are none.
    Leased(Vec<ShareId>),
    /// How much is leased.
    Usage {
        /// Shares, and bytes.
        usage: (u64, u64),
        /// What they may be at most.
        quota: Option<(u64, u64)>,
    },
}

/// Why an account is not given what it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum AccountRefusal {
    /// Somebody else signed, or something else, or for another store.
    #[error("the request is not signed by its account for this store")]
    Signature,
    /// The store does not know the key.
    #[error("no account here has this key; on the server: leasehold shares account add NAME KEY")]
    Unknown,
    /// The number was used before.
    #[error("the request's number is not larger than that of the account's last request")]
    Replayed,
    /// It is no call, or its body is another, or longer than a frame may be.
    #[error("the request makes no sense")]
    Malformed,
    /// It would be more than the account may lease.
    #[error("it is more than the account's quota allows; let go of something first")]
    Quota,
    /// A share of this name has other bytes.
    #[error("there is a share of this name with other content; choose another name")]
    Taken,
    /// The share is being written or deleted.
    #[error("the share is being written or deleted; try again later")]
    Busy,
    /// The disk is full.
    #[error("the disk is full")]
    NoSpace,
    /// The server could not; its log says why.
    #[error("the share server could not do it; its log says why")]
    Failed,
}
