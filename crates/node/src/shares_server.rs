//! The share server, and the accounts that use it: one of each machine, for what its client has just uploaded, and the server group's, for
//! what the files of its regions refer to.

use directory::ShareWork;
use namespace::{Error, ShareId};
use parking_lot::Mutex;
use shares::{AccountId, DatabaseError, Deletion, NewShare, OpenError, ReadError, ShareServer, StoreError};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use wire::MachineId;

/// The share server does not start.
#[derive(Debug, thiserror::Error)]
pub enum SharesError {
    /// Its directory.
    #[error("the share server does not start")]
    Open(#[from] OpenError),
    /// Its accounts.
    #[error("the share server does not know its accounts")]
    Accounts(#[from] DatabaseError),
}

/// See the module.
pub struct Shares {
    server: ShareServer,
    /// Of machines that have used this process. Their leases are for what is not referenced yet; a new session of a machine has nothing of that kind.
    uploaders: Mutex<BTreeMap<MachineId, Uploader>>,
    /// Of the server group.
    pub(crate) group: AccountId,
}

/// A machine's account.
#[derive(Clone, Copy, Debug)]
struct Uploader {
    account: AccountId,
    /// From this second (UTC) on it may store: leases tell time in seconds, and what an earlier session stored in the very second in which it ended
    /// must be told from what the new one stores.
    from: u64,
}

impl Shares {
    /// Opens the share server in `dir`.
    pub fn open(dir: &Path) -> Result<Shares, SharesError> {
        let server = ShareServer::open(dir, shares::Settings::new(Arc::new(utc_secs)))?;
        let group = server.account("group-1")?;
        Ok(Shares { server, uploaders: Mutex::default(), group })
    }

    /// The server itself.
    pub fn server(&self) -> &ShareServer {
        &self.server
    }

    /// A new session of `machine` begins: what it stores is put off into the next second. To be swept before that.
    pub fn begin(&self, machine: MachineId) -> u64 {
        let from = utc_secs() + 1;
        match self.uploader(machine) {
            Ok(mut uploader) => {
                uploader.from = from;
                self.uploaders.lock().insert(machine, uploader);
            }
            Err(error) => warn(&error, "a machine's account cannot be made; it is tried again"),
        }
        from
    }

    /// Stores shares for `machine` together. All of them, or each by itself if that fails: one must not fail with another. Blocks.
    pub fn store(&self, machine: MachineId, shares: Vec<NewShare>) -> Vec<Result<(), Error>> {
        let Uploader { account, from } = match self.uploader(machine) {
            Ok(uploader) => uploader,
            Err(error) => {
                warn(&error, "a share could not be stored");
                return vec![Err(Error::Damaged); shares.len()];
            }
        };
        while utc_secs() < from {
            std::thread::sleep(Duration::from_millis(10));
        }
        if self.server.store_many(shares.clone(), account, None).is_ok() {
            return vec![Ok(()); shares.len()];
        }
        let each = shares.into_iter().map(|share| {
            self.server.store_many(vec![share], account, None).map_err(|error| {
                tracing::error!(error = &error as &dyn std::error::Error, "a share could not be stored");
                if matches!(error, StoreError::Full) { Error::NoSpace } else { Error::Damaged }
            })
        });
        each.collect()
    }

    /// Reads a part of a share.
    pub fn read(&self, share: ShareId, at: u32, length: u32) -> Result<Vec<u8>, Error> {
        self.server.read(&share, at, length).map_err(|error: ReadError| {
            tracing::error!(error = &error as &dyn std::error::Error, "a share cannot be read");
            Error::Damaged
        })
    }

    /// Takes and lets go leases as the server says; whether all of it is durable.
    pub fn settle(&self, work: &[ShareWork]) -> bool {
        let (mut adopt, mut drop) = (Vec::new(), Vec::new());
        for item in work {
            match item {
                ShareWork::Adopt(share) => adopt.push(*share),
                ShareWork::Drop(share) => drop.push(*share),
            }
        }
        let done = self.adopt(&adopt).and_then(|()| match drop.is_empty() {
            true => Ok(()),
            false => self.server.let_go_all(&drop, Deletion::AtOnce),
        });
        if let Err(error) = &done {
            warn(error, "share leases could not be settled; it is tried again");
        }
        done.is_ok()
    }

    /// First the group's lease, then the uploader's end: at no moment is a referenced share unleased. Who uploaded it is not said, so all let go
    /// who may have; one that has not been here since this process began is swept at its next session.
    fn adopt(&self, shares: &[ShareId]) -> Result<(), DatabaseError> {
        if shares.is_empty() {
            return Ok(());
        }
        self.server.lease(self.group, shares, None)?;
        let uploaders: Vec<Uploader> = self.uploaders.lock().values().copied().collect();
        for uploader in uploaders {
            self.server.let_go(uploader.account, shares, Deletion::AtOnce)?;
        }
        Ok(())
    }

    /// Lets go what `machine` has stored and does not need.
    pub fn let_go(&self, machine: MachineId, shares: &[ShareId]) {
        let done = self
            .uploader(machine)
            .and_then(|uploader| self.server.let_go(uploader.account, shares, Deletion::AtOnce));
        if let Err(error) = done {
            warn(&error, "unneeded shares could not be let go; the machine's next session does it");
        }
    }

    /// Lets go what `machine` had uploaded before `since` and nobody has adopted: earlier sessions' uploads. Only when the group has
    /// settled what was pending.
    pub fn sweep(&self, machine: MachineId, since: u64) {
        let swept = self
            .uploader(machine)
            .and_then(|uploader| self.server.drop_unrenewed_since(uploader.account, since));
        match swept {
            Ok(0) => {}
            Ok(count) => {
                tracing::info!(
                    count,
                    machine = machine.0,
                    "dropped uploads that a session had left unreferenced"
                );
            }
            Err(error) => warn(&error, "old uploads could not be swept; the machine's next session does it"),
        }
    }

    fn uploader(&self, machine: MachineId) -> Result<Uploader, DatabaseError> {
        if let Some(known) = self.uploaders.lock().get(&machine) {
            return Ok(*known);
        }
        let account = self.server.account(&format!("machine-{}", machine.0))?;
        Ok(*self.uploaders.lock().entry(machine).or_insert(Uploader { account, from: 0 }))
    }
}

fn warn(error: &DatabaseError, what: &str) {
    tracing::error!(error = error as &dyn std::error::Error, "{what}");
}

pub(crate) fn utc_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
