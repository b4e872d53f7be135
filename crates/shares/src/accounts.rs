//! Accounts: the cluster's own, which are known by name, and those of keys, which sign their
//! requests.
//!
//! There are no shared secrets (leasedb, fault 9). A request belongs to the account whose key
//! signed it. The signature names this store alone and a number larger than any that the account
//! used before, so an eavesdropper cannot replay the request. In the database the account of a key
//! is called `key-` and its name, so it is never mistaken for one of the cluster's.

use crypto::{PublicKey, SecretKey, Signature};
use namespace::ShareId;
use rusqlite::Connection;
use thiserror::Error;

use crate::{
    rows::AccountRow,
    schema, seal,
    share::{AccountId, Seconds, Usage},
    tx::{self, Tx},
};

/// The domain separator of signatures.
const CONTEXT: &[u8] = b"leasehold share request 1\0";

/// The prefix of the names of keys' accounts in the database.
const OF_KEYS: &str = "key-";

/// The public half of an account's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountKey(pub [u8; 32]);

impl AccountKey {
    /// That of the account which has the key.
    pub fn of(secret: &SecretKey) -> AccountKey {
        AccountKey(secret.public().0)
    }

    /// The name of a share that this account stores. Its last eight bytes are the first of the key.
    /// In the names of other accounts these bytes are random, or say how a share of a file is
    /// spread. So an account cannot take a name that another's share has or gets, nor one that a
    /// file refers to.
    pub fn name(&self, random: [u8; 8]) -> ShareId {
        let mut name = [0; 16];
        name.iter_mut().zip(random.iter().chain(&self.0)).for_each(|(byte, from)| *byte = *from);
        ShareId(name)
    }

    /// Whether this account may store a share of that name.
    pub fn may_name(&self, share: &ShareId) -> bool {
        let random = share.0.first_chunk().expect("a name is longer");
        self.name(*random) == *share
    }
}

/// An account, and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its number in this store.
    pub id: AccountId,
    /// Its name.
    pub name: String,
    /// Its key; `None`: the account is the cluster's own.
    pub key: Option<AccountKey>,
    /// The time of its creation.
    pub created_at: Seconds,
    /// The most that it may lease.
    pub quota: Option<Usage>,
    /// The amount that it has leased.
    pub usage: Usage,
}

impl From<AccountRow> for Account {
    fn from(row: AccountRow) -> Account {
        let AccountRow { id, name, key, created_at, quota, nonce: _, usage } = row;
        let name = name.strip_prefix(OF_KEYS).filter(|_| key.is_some()).map_or(name.clone(), str::to_owned);
        let created_at = u64::try_from(created_at).unwrap_or(0);
        Account { id, name, key: key.map(AccountKey), created_at, quota, usage }
    }
}

/// Why a name for an account is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AccountError {
    /// The account of another key has the name.
    #[error("another key's account has this name; choose another, or remove that one first")]
    Taken,
    /// The key's account has another name already.
    #[error("this key's account has another name already: leasehold shares account list")]
    Renamed,
    /// The name is malformed.
    #[error("a name has 1 to 64 letters, digits, '-', '_' and '.'")]
    Unfit,
}

/// A request with its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The asker's key.
    pub key: AccountKey,
    /// Larger than in any earlier request of this account.
    pub nonce: u64,
    /// The request itself.
    pub request: Vec<u8>,
    /// Of all of the above, and of the store that is asked.
    pub signature: Signature,
}

/// Why a signed request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SignatureError {
    /// The signature is not by that key for that store.
    #[error("the request is not signed by its account for this store")]
    Signature,
    /// No account has that key. An operator must make the account first.
    #[error("no account has this key")]
    Unknown,
    /// The request was seen before, or arrived after a later one.
    #[error("the request's number is not larger than that of the account's last request")]
    Replayed,
}

impl Signed {
    /// A request to `store` by the account of this key.
    pub fn by(secret: &SecretKey, store: &[u8; 16], nonce: u64, request: Vec<u8>) -> Signed {
        let key = AccountKey::of(secret);
        let signature = secret.sign(&signed_bytes(store, &key, nonce, &request));
        Signed { key, nonce, request, signature }
    }

    /// Whether its key has signed it for `store`.
    pub(crate) fn is_signed_for(&self, store: &[u8; 16]) -> bool {
        let bytes = signed_bytes(store, &self.key, self.nonce, &self.request);
        PublicKey(self.key.0).has_signed(&bytes, &self.signature)
    }
}

fn signed_bytes(store: &[u8; 16], key: &AccountKey, nonce: u64, request: &[u8]) -> Vec<u8> {
    [CONTEXT, store, &key.0, &nonce.to_le_bytes(), request].concat()
}

/// Finds the account that has this key, and admits a request of this number. The number is durably
/// used up.
pub(crate) fn admit(
    tx: &mut Tx<'_>,
    key: &AccountKey,
    nonce: u64,
) -> rusqlite::Result<Result<AccountId, SignatureError>> {
    let Some(AccountRow { id, .. }) = of_key(tx.connection, key)? else {
        return Ok(Err(SignatureError::Unknown));
    };
    let account = tx.account(id)?;
    match i64::try_from(nonce) {
        Ok(nonce) if nonce > account.nonce => account.nonce = nonce,
        _ => return Ok(Err(SignatureError::Replayed)),
    }
    Ok(Ok(id))
}

/// The cluster's own account of that name. It is made if it is missing.
pub(crate) fn named(tx: &mut Tx<'_>, name: &str) -> rusqlite::Result<AccountId> {
    if let Some(AccountRow { id, .. }) = of_name(tx.connection, name)? {
        return Ok(id);
    }
    add(tx, |id, now| schema::account(id, name.to_owned(), now))
}

/// The account of a key. It is made if it is missing.
pub(crate) fn keyed(
    tx: &mut Tx<'_>,
    key: AccountKey,
    name: &str,
    quota: Option<Usage>,
) -> rusqlite::Result<Result<AccountId, AccountError>> {
    let fits = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > 64 || !name.bytes().all(fits) {
        return Ok(Err(AccountError::Unfit));
    }
    let name = format!("{OF_KEYS}{name}");
    let called = of_name(tx.connection, &name)?;
    let id = match of_key(tx.connection, &key)? {
        Some(row) if row.name == name => row.id,
        Some(_) => return Ok(Err(AccountError::Renamed)),
        None if called.is_some() => return Ok(Err(AccountError::Taken)),
        None => add(tx, |id, now| AccountRow { key: Some(key.0), ..schema::account(id, name, now) })?,
    };
    tx.account(id)?.quota = quota;
    Ok(Ok(id))
}

fn of_name(connection: &Connection, name: &str) -> rusqlite::Result<Option<AccountRow>> {
    seal::one(connection, "SELECT * FROM accounts WHERE name = ?1", [name])
}

fn of_key(connection: &Connection, key: &AccountKey) -> rusqlite::Result<Option<AccountRow>> {
    seal::one(connection, "SELECT * FROM accounts WHERE pubkey = ?1", [key.0])
}

fn add(tx: &mut Tx<'_>, row: impl FnOnce(AccountId, i64) -> AccountRow) -> rusqlite::Result<AccountId> {
    let sql = "SELECT max(id) + 1 FROM accounts";
    let id = AccountId(tx.connection.prepare_cached(sql)?.query_row([], |row| row.get(0))?);
    seal::put(tx.connection, &row(id, tx.now))?;
    Ok(id)
}

/// Forgets an account that holds nothing. The two accounts that every store has stay.
pub(crate) fn forget(tx: &mut Tx<'_>, account: AccountId) -> rusqlite::Result<()> {
    if account > AccountId::STARTER {
        tx.forget_account(account)?;
    }
    Ok(())
}

/// All accounts.
pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<AccountRow>> {
    seal::all(connection, "SELECT * FROM accounts ORDER BY id", [])
}

/// The usage of an account's leases. It is summed up when they change.
pub(crate) fn usage(connection: &Connection, account: AccountId) -> rusqlite::Result<Usage> {
    let row: Option<AccountRow> = seal::one(connection, tx::ACCOUNT, [account.0])?;
    Ok(row.map_or_else(Usage::default, |row| row.usage))
}
