//! The requests of an account, which is an Ed25519 key, to a share server. A machine carries the
//! request unchanged. Its signature proves that the account made it; the signature is for one store
//! and is good once.

use namespace::ShareId;
use serde::{Deserialize, Serialize};

/// A signed request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountRequest {
    /// The account: the public half of its key.
    pub key: [u8; 32],
    /// A number larger than in any earlier request of this account to this store; the time in
    /// nanoseconds will do.
    pub nonce: u64,
    /// Both halves of the signature.
    pub signature: ([u8; 32], [u8; 32]),
    /// The encoded [`AccountCall`], exactly as it was signed.
    pub call: Vec<u8>,
}

/// A call of an account. Reading needs no account: any client that knows the name of a share may
/// read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccountCall {
    /// Stores the body as these shares, with a lease on each. The answer is [`AccountAnswer::Held`]
    /// when all are durable; otherwise nothing is stored. Releasing the leases undoes the call.
    Store {
        /// The shares, and the length of each in bytes.
        shares: Vec<(ShareId, u32)>,
        /// BLAKE3 of the body, which is not part of the signed bytes.
        body: [u8; 32],
    },
    /// Takes or renews the account's lease on each share; [`AccountAnswer::Held`] lists those that
    /// are leased now.
    Lease(Vec<ShareId>),
    /// Releases the account's leases on these shares. A share without any other lease goes at once.
    LetGo(Vec<ShareId>),
    /// Lists the first shares after this one that the account has leased, in order.
    List(Option<ShareId>),
    /// Asks for the account's usage and quota.
    Usage,
}

/// Answers an [`AccountRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccountAnswer {
    /// The request was refused, and nothing was done.
    Refused(AccountRefusal),
    /// These shares are leased, and sound.
    Held {
        /// The shares.
        shares: Vec<ShareId>,
        /// The end of the leases, UTC seconds, if leases of such accounts end at all.
        until: u64,
    },
    /// The request is done.
    Done,
    /// Some of the leased shares; an empty list means that there are no more.
    Leased(Vec<ShareId>),
    /// The account's usage.
    Usage {
        /// Shares, and bytes.
        usage: (u64, u64),
        /// The most that the usage may be.
        quota: Option<(u64, u64)>,
    },
}

/// Why an account's request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum AccountRefusal {
    /// The signature is of another key, of other bytes, or for another store.
    #[error("the request is not signed by its account for this store")]
    Signature,
    /// The store does not know the key.
    #[error("no account here has this key; on the server: leasehold shares account add NAME KEY")]
    Unknown,
    /// The nonce was used before.
    #[error("the request's number is not larger than that of the account's last request")]
    Replayed,
    /// The request is no call, or its body does not match, or the body is longer than a frame may
    /// be.
    #[error("the request makes no sense")]
    Malformed,
    /// The request would exceed the account's quota.
    #[error("it is more than the account's quota allows; release something first")]
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
    /// The server failed; its log says why.
    #[error("the share server could not do it; its log says why")]
    Failed,
}
