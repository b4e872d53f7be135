//! Accounts of keys at the share server: their requests over the wire, and their administration.

use crate::figures::size;
use crate::share_host::{BYTES_MAX, KEEP_MAX};
use bytes::Bytes;
use namespace::ShareId;
use serde::{Deserialize, Serialize};
use shares::{
    Account, AccountId, AccountKey, NewShare, Refusal, Seconds, ShareServer, SignatureError, Signed,
    StoreError, Usage,
};
use std::fmt;
use wire::{AccountAnswer, AccountCall, AccountRefusal, AccountRequest};

/// How many leased shares one answer lists.
const PAGE: usize = 1000;

/// Carries out an account's request, no matter which machine carries it here.
pub(crate) fn answer(server: &ShareServer, request: AccountRequest, body: Bytes) -> AccountAnswer {
    carry_out(server, request, body).unwrap_or_else(AccountAnswer::Refused)
}

fn carry_out(
    server: &ShareServer,
    request: AccountRequest,
    body: Bytes,
) -> Result<AccountAnswer, AccountRefusal> {
    let AccountRequest { key, nonce, signature: (first, second), call } = request;
    let mut signature = [0; 64];
    signature.iter_mut().zip(first.iter().chain(&second)).for_each(|(to, from)| *to = *from);
    let signed = Signed { key: AccountKey(key), nonce, request: call, signature };
    let account = server.admit(&signed).map_err(failed)?.map_err(|why| match why {
        SignatureError::Signature => AccountRefusal::Signature,
        SignatureError::Unknown => AccountRefusal::Unknown,
        SignatureError::Replayed => AccountRefusal::Replayed,
    })?;
    let call = wire::decode(&signed.request).map_err(|_| AccountRefusal::Malformed)?;
    Ok(match call {
        AccountCall::Store { shares, body: hash } => {
            let until = server.lease_end();
            let names = shares.iter().map(|(share, _)| *share).collect();
            let parts = parts(&signed.key, shares, &hash, body)?;
            server.store_many(parts, account, Some(until)).map_err(refused)?;
            AccountAnswer::Held { shares: names, until }
        }
        AccountCall::Lease(shares) => {
            let until = server.lease_end();
            let held = server.lease(account, bounded(&shares)?, Some(until)).map_err(failed)?;
            AccountAnswer::Held { shares: held, until }
        }
        AccountCall::LetGo(shares) => {
            let shares = bounded(&shares)?;
            server.let_go(account, shares, shares::Deletion::AtOnce).map_err(failed)?;
            AccountAnswer::Done
        }
        AccountCall::List(after) => {
            AccountAnswer::Leased(server.held_by(account, after.as_ref(), PAGE).map_err(failed)?)
        }
        AccountCall::Usage => usage(server, account)?,
    })
}

fn bounded(shares: &[ShareId]) -> Result<&[ShareId], AccountRefusal> {
    if shares.len() > KEEP_MAX { Err(AccountRefusal::Malformed) } else { Ok(shares) }
}

/// Splits the body into its shares, if it is the body that was signed for. The shares' names must
/// end in the beginning of the key. So an account cannot overwrite another's share, or one that a
/// file refers to.
fn parts(
    key: &AccountKey,
    shares: Vec<(ShareId, u32)>,
    hash: &[u8; 32],
    mut body: Bytes,
) -> Result<Vec<NewShare>, AccountRefusal> {
    let all = shares.iter().try_fold(0, |sum: usize, (_, length)| sum.checked_add(*length as usize));
    let fits = shares.len() <= KEEP_MAX && body.len() <= BYTES_MAX && all == Some(body.len());
    let its_own = shares.iter().all(|(share, _)| key.may_name(share));
    if !fits || !its_own || crypto::hash(&body).as_bytes() != hash {
        return Err(AccountRefusal::Malformed);
    }
    let part = |(id, length): (ShareId, u32)| NewShare { id, parts: vec![body.split_to(length as usize)] };
    Ok(shares.into_iter().map(part).collect())
}

fn usage(server: &ShareServer, account: AccountId) -> Result<AccountAnswer, AccountRefusal> {
    let pair = |usage: Usage| (usage.shares, usage.bytes);
    let accounts = server.accounts().map_err(failed)?;
    let known = accounts.into_iter().find(|known| known.id == account).ok_or(AccountRefusal::Unknown)?;
    Ok(AccountAnswer::Usage { usage: pair(known.usage), quota: known.quota.map(pair) })
}

fn refused(error: StoreError) -> AccountRefusal {
    match error {
        StoreError::Full => AccountRefusal::NoSpace,
        StoreError::Refused { why: Refusal::Quota, .. } => AccountRefusal::Quota,
        StoreError::Refused { why: Refusal::Different, .. } => AccountRefusal::Taken,
        StoreError::Refused { why: Refusal::Coming | Refusal::Going, .. } => AccountRefusal::Busy,
        StoreError::Refused { why: Refusal::TooLong, .. } => AccountRefusal::Malformed,
        StoreError::Disk(_) | StoreError::Database(_) => failed(error),
    }
}

fn failed(error: impl std::error::Error + 'static) -> AccountRefusal {
    tracing::error!(error = &error as &dyn std::error::Error, "what an account asks could not be done");
    AccountRefusal::Failed
}

/// The limit of a key's account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowance {
    /// The account's name.
    pub account: String,
    /// Bytes that it may lease at most; if absent, the free space is the limit.
    pub quota: Option<u64>,
}

/// The result of ending leases of a key's account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedLeases {
    /// The account's name.
    pub account: String,
    /// How many leases have ended.
    pub leases: usize,
    /// Whether the account itself has ended with them.
    pub removed: bool,
}

impl fmt::Display for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.quota {
            Some(bytes) => write!(f, "{} may lease {} here", self.account, size(bytes)),
            None => write!(f, "{} may lease as much as there is room for here", self.account),
        }
    }
}

impl fmt::Display for EndedLeases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EndedLeases { account, leases, removed } = self;
        if *removed {
            return write!(f, "{account} has no account here any more, and {leases} leases have ended");
        }
        write!(f, "{leases} leases of {account} have ended; what nobody else has leased goes a day later")
    }
}

/// Makes an account for a key, or changes its quota.
pub(super) fn add(
    server: &ShareServer,
    name: &str,
    key: &str,
    quota: Option<u64>,
) -> Result<Allowance, String> {
    let key = key_of(key).ok_or_else(|| format!("{key} is no key: one has 64 hexadecimal digits"))?;
    let most = quota.map(|bytes| Usage { shares: i64::MAX as u64, bytes });
    let made = server.key_account(key, name, most).map_err(super::words)?;
    made.map_err(|error| error.to_string())?;
    Ok(Allowance { account: name.to_owned(), quota })
}

/// Finds a key's account by its name or key.
fn account_of(server: &ShareServer, who: &str) -> Result<Account, String> {
    let is = |key: &AccountKey, name: &str| name == who || key_of(who) == Some(*key);
    let mut accounts = server.accounts().map_err(super::words)?.into_iter();
    let found = accounts.find(|account| account.key.is_some_and(|key| is(&key, &account.name)));
    found.ok_or_else(|| format!("there is no key's account {who} here"))
}

/// Ends the leases of an account, by its name or key, that were last renewed before `since`.
pub(super) fn sweep(server: &ShareServer, who: &str, since: Seconds) -> Result<EndedLeases, String> {
    let account = account_of(server, who)?;
    let leases = server.drop_unrenewed_since(account.id, since).map_err(super::words)?;
    Ok(EndedLeases { account: account.name, leases, removed: false })
}

/// Ends an account, by its name or key.
pub(super) fn remove(server: &ShareServer, who: &str) -> Result<EndedLeases, String> {
    let account = account_of(server, who)?;
    let leases = server.end_account(account.id).map_err(super::words)?;
    Ok(EndedLeases { account: account.name, leases, removed: true })
}

/// Parses a key of 64 hexadecimal digits.
fn key_of(text: &str) -> Option<AccountKey> {
    let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
    bytes.try_into().ok().map(AccountKey)
}
