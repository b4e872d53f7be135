//! Accounts of keys at the share server: their requests over the wire.

use crate::share_host::{BYTES_MAX, KEEP_MAX};
use bytes::Bytes;
use namespace::ShareId;
use shares::{
    AccountId, AccountKey, NewShare, Refusal, ShareServer, SignatureError, Signed, StoreError, Usage,
};
use wire::{AccountAnswer, AccountCall, AccountRefusal, AccountRequest};

/// How many leased shares one answer lists.
const PAGE: usize = 1000;

/// Carries out an account's request, no matter which machine carries it here.
pub fn answer(server: &ShareServer, request: AccountRequest, body: Bytes) -> AccountAnswer {
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
            server.release(account, shares, shares::Deletion::AtOnce).map_err(failed)?;
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
