//! Accounts: the cluster's own, which are known by name, and those of Ed25519 keys, which sign what they ask.
//!
//! There are no shared secrets (leasedb, fault 9): whoever asks is the account whose key signed, for this store alone and with a number larger than any
//! that this account used before, so that nothing can be asked again by who listened.

use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rusqlite::Connection;
use thiserror::Error;

use crate::{
    rows::AccountRow,
    schema, seal,
    share::{AccountId, Usage},
    tx::{self, Tx},
};

/// Bytes that say what kind of thing is signed.
const CONTEXT: &[u8] = b"leasehold share request 1\0";

/// The public half of an account's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountKey(pub [u8; 32]);

/// A request with its signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// Who asks.
    pub key: AccountKey,
    /// Larger than in any earlier request of this account.
    pub nonce: u64,
    /// What is asked.
    pub request: Vec<u8>,
    /// Of all of the above, and of the store that is asked.
    pub signature: [u8; 64],
}

/// Why a signed request is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SignatureError {
    /// Not signed with that key, for that store.
    #[error("the request is not signed by its account for this store")]
    Signature,
    /// No account has that key: it has to be made first.
    #[error("no account has this key")]
    Unknown,
    /// A request that was seen before, or came later than one that was sent after it.
    #[error("the request's number is not larger than that of the account's last request")]
    Replayed,
}

impl Signed {
    /// Signs a request for `store`.
    pub fn new(pair: &Ed25519KeyPair, store: &[u8; 16], nonce: u64, request: Vec<u8>) -> Option<Signed> {
        let key = AccountKey(pair.public_key().as_ref().try_into().ok()?);
        let signature = pair.sign(&signed_bytes(store, &key, nonce, &request)).as_ref().try_into().ok()?;
        Some(Signed { key, nonce, request, signature })
    }

    fn is_signed_for(&self, store: &[u8; 16]) -> bool {
        let bytes = signed_bytes(store, &self.key, self.nonce, &self.request);
        UnparsedPublicKey::new(&ED25519, self.key.0).verify(&bytes, &self.signature).is_ok()
    }
}

fn signed_bytes(store: &[u8; 16], key: &AccountKey, nonce: u64, request: &[u8]) -> Vec<u8> {
    [CONTEXT, store, &key.0, &nonce.to_le_bytes(), request].concat()
}

/// Whose request it is. Its number is used up, durably.
pub(crate) fn admit(tx: &mut Tx<'_>, signed: &Signed) -> rusqlite::Result<Result<AccountId, SignatureError>> {
    if !signed.is_signed_for(&tx.store.id) {
        return Ok(Err(SignatureError::Signature));
    }
    let Some(AccountRow { id, .. }) = of_key(tx.connection, &signed.key)? else {
        return Ok(Err(SignatureError::Unknown));
    };
    let account = tx.account(id)?;
    match i64::try_from(signed.nonce) {
        Ok(nonce) if nonce > account.nonce => account.nonce = nonce,
        _ => return Ok(Err(SignatureError::Replayed)),
    }
    Ok(Ok(id))
}

/// The cluster's own account of that name, made if there is none.
pub(crate) fn named(tx: &mut Tx<'_>, name: &str) -> rusqlite::Result<AccountId> {
    if let Some(row) = seal::one(tx.connection, "SELECT * FROM accounts WHERE name = ?1", [name])? {
        let AccountRow { id, .. } = row;
        return Ok(id);
    }
    add(tx, |id, now| schema::account(id, name.to_owned(), now))
}

/// The account of a key, made if there is none.
pub(crate) fn keyed(tx: &mut Tx<'_>, key: AccountKey, quota: Option<Usage>) -> rusqlite::Result<AccountId> {
    let id = match of_key(tx.connection, &key)? {
        Some(row) => row.id,
        None => {
            let name: String = key.0.iter().map(|byte| format!("{byte:02x}")).collect();
            let row =
                |id, now| AccountRow { key: Some(key.0), ..schema::account(id, format!("key-{name}"), now) };
            add(tx, row)?
        }
    };
    tx.account(id)?.quota = quota;
    Ok(id)
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

/// Forgets an account that holds nothing. The two that every store has stay.
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

/// What an account's leases hold, summed up when they change.
pub(crate) fn usage(connection: &Connection, account: AccountId) -> rusqlite::Result<Usage> {
    let row: Option<AccountRow> = seal::one(connection, tx::ACCOUNT, [account.0])?;
    Ok(row.map_or_else(Usage::default, |row| row.usage))
}
