//! The administration of accounts of keys.

use crate::error::failed;
use admin::{Allowance, ControlRefusal, EndedLeases, RequestWork};
use shares::{Account, AccountKey, Seconds, ShareServer, Usage};

/// Makes an account for a key, or changes its quota.
pub(super) fn add(
    server: &ShareServer,
    name: &str,
    key: &str,
    quota: Option<u64>,
) -> Result<Allowance, ControlRefusal> {
    let key = key_of(key).ok_or_else(|| ControlRefusal::NoKey { key: key.to_owned() })?;
    let most = quota.map(|bytes| Usage { shares: i64::MAX as u64, bytes });
    let made = server.key_account(key, name, most).map_err(super::unread)?;
    made.map_err(|error| failed(RequestWork::MakingAccount, &error))?;
    Ok(Allowance { account: name.to_owned(), quota })
}

/// Finds a key's account by its name or key.
fn account_of(server: &ShareServer, who: &str) -> Result<Account, ControlRefusal> {
    let is = |key: &AccountKey, name: &str| name == who || key_of(who) == Some(*key);
    let mut accounts = server.accounts().map_err(super::unread)?.into_iter();
    let found = accounts.find(|account| account.key.is_some_and(|key| is(&key, &account.name)));
    found.ok_or_else(|| ControlRefusal::NoAccount { account: who.to_owned() })
}

/// Ends the leases of an account, by its name or key, that were last renewed before `since`.
pub(super) fn sweep(server: &ShareServer, who: &str, since: Seconds) -> Result<EndedLeases, ControlRefusal> {
    let account = account_of(server, who)?;
    let leases = server.drop_unrenewed_since(account.id, since).map_err(super::unread)?;
    Ok(EndedLeases { account: account.name, leases, removed: false })
}

/// Ends an account, by its name or key.
pub(super) fn remove(server: &ShareServer, who: &str) -> Result<EndedLeases, ControlRefusal> {
    let account = account_of(server, who)?;
    let leases = server.end_account(account.id).map_err(super::unread)?;
    Ok(EndedLeases { account: account.name, leases, removed: true })
}

/// Parses a key of 64 hexadecimal digits.
fn key_of(text: &str) -> Option<AccountKey> {
    let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
    bytes.try_into().ok().map(AccountKey)
}
