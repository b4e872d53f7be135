//! The holders of shares: accounts with what they hold, and shares with their holders, by names
//! that people know.

use crate::server::Server;
use admin::{AccountReport, LeaseReport, LeasesReport, ShareReport, Standing, UsageReport};
use namespace::ShareId;
use share_hosts::{GROUP, Sum, uploader};
use shares::{Account, AccountId, DatabaseError, Health, State};
use std::collections::BTreeMap;

/// The names of accounts.
pub(super) struct LeaseNames(BTreeMap<AccountId, String>);

impl LeaseNames {
    /// Loads the names of all accounts that exist now.
    pub(super) fn new(server: &Server) -> Result<LeaseNames, DatabaseError> {
        let machines: BTreeMap<u64, String> =
            server.machines().into_iter().map(|known| (known.machine, known.name)).collect();
        let accounts = server.shares().server().accounts()?;
        Ok(LeaseNames(accounts.iter().map(|account| (account.id, name(account, &machines))).collect()))
    }

    pub(super) fn of(&self, account: AccountId) -> String {
        self.0.get(&account).cloned().unwrap_or_else(|| format!("account {}, which is gone", account.0))
    }
}

fn name(account: &Account, machines: &BTreeMap<u64, String>) -> String {
    if account.key.is_some() {
        return format!("key {}", account.name);
    }
    match (account.id, uploader(&account.name)) {
        (AccountId::ANONYMOUS, _) => "nobody in particular".to_owned(),
        (AccountId::STARTER, _) => "whoever it was when it was found".to_owned(),
        (_, Some((machine, session))) => {
            let machine =
                machines.get(&machine.0).cloned().unwrap_or_else(|| format!("machine {}", machine.0));
            format!("{machine}, uploads of session {}", session.0)
        }
        _ if account.name == GROUP => "files of the cluster".to_owned(),
        _ => account.name.clone(),
    }
}

/// The shares that each account has leased.
pub(super) fn usage(server: &Server) -> Result<UsageReport, DatabaseError> {
    let (names, store) = (LeaseNames::new(server)?, server.shares().server());
    let accounts = store.accounts()?.into_iter().map(|account| AccountReport {
        account: names.of(account.id),
        key: account.key.map(|key| key.0.iter().map(|byte| format!("{byte:02x}")).collect()),
        leased: account.usage.into(),
        quota: account.quota.map(Sum::from),
    });
    // Every store has two accounts of its own. They are left out while they hold nothing.
    let accounts = accounts.filter(|account| account.leased.shares > 0 || account.key.is_some());
    Ok(UsageReport { accounts: accounts.collect(), stored: store.stored()?.into() })
}

/// The holders of each of `shares`.
pub(super) fn of(server: &Server, shares: &[ShareId]) -> Result<LeasesReport, DatabaseError> {
    let (names, store) = (LeaseNames::new(server)?, server.shares().server());
    let mut report = LeasesReport { now: store.now(), shares: Vec::with_capacity(shares.len()) };
    let referenced = server.group().query(|_, rows| {
        shares.iter().map(|share| directory::refers_to(rows, &share.whole())).collect::<Vec<_>>()
    });
    for (share, referenced) in shares.iter().zip(referenced) {
        let known = store.share(share)?;
        let standing = match known.as_ref().map(|known| (known.state, known.health)) {
            None => Standing::NotHere,
            Some((State::Coming, _)) => Standing::Coming,
            Some((State::Going, _)) => Standing::Going,
            Some((State::Stable, Health::Ok)) => Standing::Sound,
            Some((State::Stable, Health::Missing)) => Standing::Missing,
            Some((State::Stable, Health::Partial | Health::Corrupt)) => Standing::Damaged,
        };
        let leases = store.leases_of(share)?.into_iter().map(|lease| LeaseReport {
            account: names.of(lease.account),
            renewed: lease.renewed_at,
            ends: lease.expires_at,
        });
        report.shares.push(ShareReport {
            share: share.to_string(),
            standing,
            bytes: known.map(|known| known.length),
            referenced,
            leases: leases.collect(),
        });
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shares::{AccountKey, Usage};

    #[test]
    fn accounts_are_called_what_people_know_them_by() {
        let machines = BTreeMap::from([(3, "hall".to_owned())]);
        let called = |id, text: &str, key| {
            let (key, quota, usage) = (key, None, Usage::default());
            let account =
                Account { id: AccountId(id), name: text.to_owned(), key, created_at: 0, quota, usage };
            name(&account, &machines)
        };
        assert_eq!(called(2, "group-1", None), "files of the cluster");
        assert_eq!(called(5, "machine-3-17", None), "hall, uploads of session 17");
        assert_eq!(called(6, "machine-4-2", None), "machine 4, uploads of session 2");
        assert_eq!(called(7, "group-1", Some(AccountKey([1; 32]))), "key group-1");
    }
}
