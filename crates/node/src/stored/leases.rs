//! The holders of shares: accounts with what they hold, and shares with their holders, by names
//! that people know.

use crate::server::Server;
use admin::{
    AccountReport, LeasesReport, ShareAccount, ShareLeaseReport, ShareReport, StoredState, UsageReport,
};
use namespace::ShareId;
use share_hosts::{GROUP, ReferenceIndex, Sum, uploader};
use shares::{Account, AccountId, DatabaseError, Health, State};
use std::collections::BTreeMap;
use wire::MachineId;

/// The accounts as reports have them.
pub(super) struct LeaseNames(BTreeMap<AccountId, ShareAccount>);

impl LeaseNames {
    /// Loads all accounts that exist now.
    pub(super) fn new(server: &Server) -> Result<LeaseNames, DatabaseError> {
        let machines: BTreeMap<u64, String> =
            server.machines().into_iter().map(|known| (known.machine, known.name)).collect();
        let accounts = server.shares().server().accounts()?;
        Ok(LeaseNames(accounts.iter().map(|account| (account.id, named(account, &machines))).collect()))
    }

    pub(super) fn of(&self, account: AccountId) -> ShareAccount {
        self.0.get(&account).cloned().unwrap_or(ShareAccount::Gone)
    }
}

fn named(account: &Account, machines: &BTreeMap<u64, String>) -> ShareAccount {
    if account.key.is_some() {
        return ShareAccount::Key { name: account.name.clone() };
    }
    match (account.id, uploader(&account.name)) {
        (AccountId::ANONYMOUS, _) => ShareAccount::Anonymous,
        (AccountId::STARTER, _) => ShareAccount::Starter,
        (_, Some((MachineId(machine), session))) => {
            let machine_name = machines.get(&machine).cloned();
            ShareAccount::Uploads { machine, machine_name, session: session.0 }
        }
        _ if account.name == GROUP => ShareAccount::Cluster,
        _ => ShareAccount::Other { name: account.name.clone() },
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
    let referenced = server.refers_to(shares);
    for (share, referenced) in shares.iter().zip(referenced) {
        let known = store.share(share)?;
        let standing = match known.as_ref().map(|known| (known.state, known.health)) {
            None => StoredState::NotHere,
            Some((State::Coming, _)) => StoredState::Coming,
            Some((State::Going, _)) => StoredState::Going,
            Some((State::Stable, Health::Ok)) => StoredState::Sound,
            Some((State::Stable, Health::Missing)) => StoredState::Missing,
            Some((State::Stable, Health::Partial | Health::Corrupt)) => StoredState::Damaged,
        };
        let leases = store.leases_of(share)?.into_iter().map(|lease| ShareLeaseReport {
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
    fn accounts_are_told_apart() {
        let machines = BTreeMap::from([(3, "hall".to_owned())]);
        let account = |id, text: &str, key| {
            let (key, quota, usage) = (key, None, Usage::default());
            let account =
                Account { id: AccountId(id), name: text.to_owned(), key, created_at: 0, quota, usage };
            named(&account, &machines)
        };
        let uploads = |machine, name: Option<&str>, session| {
            let machine_name = name.map(str::to_owned);
            ShareAccount::Uploads { machine, machine_name, session }
        };
        assert_eq!(account(2, "group-1", None), ShareAccount::Cluster);
        assert_eq!(account(5, "machine-3-17", None), uploads(3, Some("hall"), 17));
        assert_eq!(account(6, "machine-4-2", None), uploads(4, None, 2));
        let key = ShareAccount::Key { name: "group-1".to_owned() };
        assert_eq!(account(7, "group-1", Some(AccountKey([1; 32]))), key);
    }
}
