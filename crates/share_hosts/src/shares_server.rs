//! The share server, and the accounts that use it. Each session of a machine has an account, for
//! the uploads of its client. The server group has one, for the shares that files of its regions
//! refer to.

use lease::SessionId;
use namespace::{Error, ShareId};
use os::STOP_LOOK;
use parking_lot::Mutex;
use shares::{
    AccountId, Clock, DatabaseError, Deletion, Expiry, Location, NewShare, OpenError, Refusal, Seconds,
    ShareServer, StoreError, Suspended, Tell, Uploaders,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::{MachineId, ShareWork};

/// Sessions of one machine that may have uploaded and are not swept yet, at most. An honest machine
/// has few.
const SESSIONS_MAX: usize = 256;
/// The name of the account for the shares that files refer to.
pub const GROUP: &str = "group-1";
/// Between two attempts at a share that another upload or deletion has. The repetition of a request
/// whose answer was lost may overtake that request.
const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// The number of such attempts.
const BUSY_ATTEMPTS: u32 = 100;
/// How long a process that ends may keep the share server. Threads of it may still run when it lets
/// go of the data directory, and the kernel releases the locks of a killed process one by one.
const ENDING: Duration = Duration::from_secs(30);

/// Why the share server does not start.
#[derive(Debug, thiserror::Error)]
pub enum SharesError {
    /// Its directory.
    #[error("the share server does not start")]
    Open(#[from] OpenError),
    /// Its accounts.
    #[error("the share server does not know its accounts")]
    Accounts(#[from] DatabaseError),
}

/// The settings of a machine's share server.
#[derive(Clone, Debug, Default)]
pub struct ShareSettings {
    /// Where it keeps content, if it has none yet. `None`: on this machine, or where the content
    /// is.
    pub content: Option<Location>,
    /// When leases of keys' accounts expire; `None`: never by themselves.
    pub expiry: Option<Expiry>,
}

/// The share server of a machine, with the accounts of the cluster.
pub struct Shares {
    server: ShareServer,
    /// The accounts of machines, by session. Their leases are for shares that are not referenced
    /// yet.
    uploaders: Mutex<BTreeMap<MachineId, BTreeMap<SessionId, AccountId>>>,
    /// The account of the server group.
    pub group: AccountId,
}

impl Shares {
    /// Opens the share server in `dir`. It reports the damage that it finds. `clock` returns UTC
    /// seconds. This process holds the data directory of `dir`, so another one that has the share
    /// server is about to end, and gets some time for that.
    pub fn open(
        dir: &Path,
        ShareSettings { content, expiry }: ShareSettings,
        clock: Clock,
        on_damage: Tell,
    ) -> Result<Shares, SharesError> {
        let settings = shares::ShareServerSettings {
            content,
            expiry,
            on_damage,
            ..shares::ShareServerSettings::new(clock)
        };
        let until = Instant::now() + ENDING;
        let server = loop {
            match ShareServer::open(dir, settings.clone()) {
                Err(OpenError::InUse(_)) if Instant::now() < until => std::thread::sleep(STOP_LOOK),
                opened => break opened?,
            }
        };
        let group = server.account(GROUP)?;
        let mut uploaders = BTreeMap::<_, BTreeMap<_, _>>::new();
        for account in server.accounts()?.iter().filter(|account| account.key.is_none()) {
            if let Some((machine, session)) = uploader(&account.name) {
                uploaders.entry(machine).or_default().insert(session, account.id);
            }
        }
        Ok(Shares { server, uploaders: Mutex::new(uploaders), group })
    }

    /// The server itself.
    pub fn server(&self) -> &ShareServer {
        &self.server
    }

    /// Stores shares for a session of `machine` together. If that fails, each share is stored by
    /// itself, so that none fails with another. Blocks.
    pub fn store(
        &self,
        machine: MachineId,
        session: SessionId,
        shares: Vec<NewShare>,
    ) -> Vec<Result<(), Error>> {
        if self.uploaders.lock().get(&machine).is_some_and(|sessions| sessions.len() > SESSIONS_MAX) {
            return vec![Err(Error::Invalid); shares.len()];
        }
        let account = match self.uploader(machine, session) {
            Ok(account) => account,
            Err(error) => {
                warn(&error, "a share could not be stored");
                return vec![Err(Error::Damaged); shares.len()];
            }
        };
        // A session may be away for long, and refer to the shares then. They go when the session is
        // over.
        self.store_for(account, None, shares)
    }

    /// As [`Shares::store`], for the group: the shares are known to be referenced.
    pub fn store_for_group(&self, shares: Vec<NewShare>) -> Vec<Result<(), Error>> {
        self.store_for(self.group, Some(self.server.lease_end()), shares)
    }

    fn store_for(
        &self,
        account: AccountId,
        until: Option<Seconds>,
        shares: Vec<NewShare>,
    ) -> Vec<Result<(), Error>> {
        if self.server.store_many(shares.clone(), account, until).is_ok() {
            return vec![Ok(()); shares.len()];
        }
        let each = shares.into_iter().map(|share| {
            self.store_one(account, until, share).map_err(|error| {
                tracing::error!(error = &error as &dyn std::error::Error, "a share could not be stored");
                if matches!(error, StoreError::Full) { Error::NoSpace } else { Error::Damaged }
            })
        });
        each.collect()
    }

    fn store_one(
        &self,
        account: AccountId,
        until: Option<Seconds>,
        share: NewShare,
    ) -> Result<(), StoreError> {
        let busy = |error: &StoreError| {
            matches!(error, StoreError::Refused { why: Refusal::Coming | Refusal::Going, .. })
        };
        for _ in 0..BUSY_ATTEMPTS {
            match self.server.store_many(vec![share.clone()], account, until) {
                Err(error) if busy(&error) => std::thread::sleep(BUSY_PAUSE),
                result => return result,
            }
        }
        self.server.store_many(vec![share], account, until)
    }

    /// Takes and releases leases as the server says. `publishers` names the publisher of each
    /// share. Once all of that is durable, returns the shares that are to be leased and are not
    /// here, or not sound.
    pub fn settle(
        &self,
        work: &[ShareWork],
        publishers: impl Fn(&[ShareId]) -> Vec<Option<MachineId>>,
    ) -> Option<Vec<ShareId>> {
        let (mut adopt, mut drop) = (Vec::new(), Vec::new());
        for item in work {
            match item {
                ShareWork::Adopt(share) => adopt.extend(share.kept_as()),
                ShareWork::Drop(share) => drop.extend(share.kept_as()),
            }
        }
        let done = self.adopt(&adopt, &publishers(&adopt)).and_then(|missing| match drop.is_empty() {
            true => Ok(missing),
            false => self.server.release_all(&drop, Deletion::AtOnce).map(|()| missing),
        });
        done.inspect_err(|error| warn(error, "share leases could not be settled; it is tried again")).ok()
    }

    /// Moves the leases of the uploaders to the group, or renews the group's own. A referenced
    /// share is leased at every moment. If the publisher is known, a share that only other machines
    /// have uploaded is deleted. Returns the shares that are not here, or not sound.
    pub fn adopt(
        &self,
        shares: &[ShareId],
        publishers: &[Option<MachineId>],
    ) -> Result<Vec<ShareId>, DatabaseError> {
        let mut accounts = BTreeMap::<MachineId, Arc<[AccountId]>>::new();
        let believed = shares.iter().zip(publishers).filter_map(|(share, publisher)| {
            let publisher = (*publisher)?;
            let accounts = accounts.entry(publisher).or_insert_with(|| self.uploaders_of(publisher).into());
            Some((*share, accounts.clone()))
        });
        let held = self.server.take_over(self.group, shares, believed.collect::<Uploaders>())?;
        let held: BTreeSet<ShareId> = held.into_iter().collect();
        Ok(shares.iter().filter(|share| !held.contains(share)).copied().collect())
    }

    /// Whether a share that is here is a copy, for `asker`. It is none if only sessions of other
    /// machines have leased it, or nobody has.
    pub fn is_copy(&self, asker: MachineId, share: &ShareId) -> Result<bool, DatabaseError> {
        let leases = self.server.leases_of(share)?;
        let uploaders = self.uploaders.lock();
        let of_another = |account: AccountId| {
            let others = uploaders.iter().filter(|(machine, _)| **machine != asker);
            others.flat_map(|(_, sessions)| sessions.values()).any(|its| *its == account)
        };
        Ok(leases.iter().any(|lease| !of_another(lease.account)))
    }

    /// Returns the accounts of all sessions of a machine.
    fn uploaders_of(&self, machine: MachineId) -> Vec<AccountId> {
        self.uploaders.lock().get(&machine).into_iter().flat_map(BTreeMap::values).copied().collect()
    }

    /// Returns the bytes that these sessions have uploaded and the group has not adopted.
    pub fn unpublished(&self, sessions: impl Iterator<Item = (MachineId, SessionId)>) -> u64 {
        let uploaders = self.uploaders.lock().clone();
        let accounts =
            sessions.filter_map(|(machine, session)| uploaders.get(&machine)?.get(&session).copied());
        let bytes = accounts.filter_map(|account| Some(self.server.usage(account).ok()?.bytes));
        bytes.fold(0, u64::saturating_add)
    }

    /// Returns the sessions that may have uploaded and are not swept yet.
    pub fn sessions(&self) -> Vec<(MachineId, SessionId)> {
        let uploaders = self.uploaders.lock();
        let of = |(machine, sessions): (&MachineId, &BTreeMap<SessionId, AccountId>)| {
            sessions.keys().map(|session| (*machine, *session)).collect::<Vec<_>>()
        };
        uploaders.iter().flat_map(of).collect()
    }

    /// Confirms the clock. The group has leased all referenced shares, and renews each lease before
    /// it ends, so no clock decides on those. A clock that has jumped may be believed about the
    /// rest: this machine may have been off for long.
    pub fn confirm_clock(&self) {
        let confirmed = match self.server.suspended() {
            Ok(Some(Suspended::Clock { .. })) => self.server.confirm_clock(),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = confirmed {
            warn(&error, "the clock could not be confirmed; it is tried again");
        }
    }

    /// Releases the group's leases on shares that are not to be here any more.
    pub fn release_of_group(&self, shares: &[ShareId]) -> Result<(), DatabaseError> {
        self.server.release(self.group, shares, Deletion::AtOnce)
    }

    /// Releases the leases of `machine` on uploads that it does not need.
    pub fn release(&self, machine: MachineId, shares: &[ShareId]) {
        for account in self.uploaders_of(machine) {
            if let Err(error) = self.server.release(account, shares, Deletion::AtOnce) {
                warn(&error, "unneeded shares could not be released; they go when the session is over");
            }
        }
    }

    /// Releases the uploads of sessions that are over, as far as they are not adopted. Called only
    /// when the group has adopted all shares that these sessions have published.
    pub fn sweep(&self, is_over: impl Fn(MachineId, SessionId) -> bool) {
        for (machine, session) in self.sessions() {
            let account = self.uploaders.lock().get(&machine).and_then(|of| of.get(&session).copied());
            let Some(account) = account.filter(|_| is_over(machine, session)) else { continue };
            match self.server.end_account(account) {
                Ok(count) => {
                    if let Some(sessions) = self.uploaders.lock().get_mut(&machine) {
                        sessions.remove(&session);
                    }
                    if count > 0 {
                        tracing::info!(
                            count,
                            machine = machine.0,
                            "dropped uploads that a session had left unreferenced"
                        );
                    }
                }
                Err(error) => {
                    warn(&error, "old uploads could not be swept; the next look through everything does it");
                }
            }
        }
    }

    /// Returns the account of a session. The database knows it before this map does, so an account
    /// that is swept in between is made again.
    fn uploader(&self, machine: MachineId, session: SessionId) -> Result<AccountId, DatabaseError> {
        let known = |sessions: &BTreeMap<SessionId, AccountId>| sessions.get(&session).copied();
        if let Some(known) = self.uploaders.lock().get(&machine).and_then(known) {
            return Ok(known);
        }
        let account = self.server.account(&format!("machine-{}-{}", machine.0, session.0))?;
        self.uploaders.lock().entry(machine).or_default().insert(session, account);
        Ok(account)
    }
}

/// Returns the session whose account has that name.
pub fn uploader(name: &str) -> Option<(MachineId, SessionId)> {
    let (machine, session) = name.strip_prefix("machine-")?.split_once('-')?;
    Some((MachineId(machine.parse().ok()?), SessionId(session.parse().ok()?)))
}

fn warn(error: &DatabaseError, what: &str) {
    tracing::error!(error = error as &dyn std::error::Error, "{what}");
}

/// Returns the clock of share servers.
pub fn wall_clock() -> Clock {
    Arc::new(os::utc_secs)
}
