//! The machine's share server, and the two accounts that use it: the machine's, for what its client has just uploaded, and the server
//! group's, for what the files of its regions refer to.

use client::Upload;
use directory::ShareWork;
use namespace::{Error, ShareId};
use shares::{AccountId, DatabaseError, Deletion, NewShare, OpenError, ReadError, ShareServer, StoreError};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

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

/// What became of an upload: its number, and the hashes of its pieces.
pub type Stored = (u64, Result<Vec<[u8; 32]>, Error>);

/// See the module.
pub struct Shares {
    server: ShareServer,
    /// Of this machine's client. Its leases are for what is not referenced yet; a new incarnation has nothing of that kind.
    pub(crate) machine: AccountId,
    /// Of the server group.
    pub(crate) group: AccountId,
}

impl Shares {
    /// Opens the share server in `dir`.
    pub fn open(dir: &Path) -> Result<Shares, SharesError> {
        let server = ShareServer::open(dir, shares::Settings::new(Arc::new(utc_secs)))?;
        let (machine, group) = (server.account("machine-1")?, server.account("group-1")?);
        Ok(Shares { server, machine, group })
    }

    /// The server itself.
    pub fn server(&self) -> &ShareServer {
        &self.server
    }

    /// Seals and stores uploads together. All of them, or each by itself if that fails: one must not fail with another.
    pub fn store(&self, uploads: Vec<Upload>) -> Vec<Stored> {
        let mut shares = Vec::with_capacity(uploads.len());
        let mut stored = Vec::with_capacity(uploads.len());
        for Upload { upload, share, key, pieces } in uploads {
            let (bytes, hashes) =
                content::seal_share(&key, pieces.iter().map(|(nonce, plain)| (*nonce, plain)));
            shares.push(NewShare { id: share, parts: vec![bytes.into()] });
            stored.push((upload, Ok(hashes)));
        }
        if self.server.store_many(shares.clone(), self.machine, None).is_ok() {
            return stored;
        }
        for (share, (_, result)) in shares.into_iter().zip(&mut stored) {
            if let Err(error) = self.server.store_many(vec![share], self.machine, None) {
                tracing::error!(error = &error as &dyn std::error::Error, "a share could not be stored");
                *result = Err(why(&error));
            }
        }
        stored
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
            tracing::error!(
                error = error as &dyn std::error::Error,
                "share leases could not be settled; it is tried again"
            );
        }
        done.is_ok()
    }

    /// First the group's lease, then the uploader's end: at no moment is a referenced share unleased.
    fn adopt(&self, shares: &[ShareId]) -> Result<(), DatabaseError> {
        if shares.is_empty() {
            return Ok(());
        }
        self.server.lease(self.group, shares, None)?;
        self.server.let_go(self.machine, shares, Deletion::AtOnce)
    }

    /// Lets go what was stored and is not needed.
    pub fn let_go(&self, shares: &[ShareId]) {
        if let Err(error) = self.server.let_go(self.machine, shares, Deletion::AtOnce) {
            // They are found and dropped at the next start.
            tracing::warn!(error = &error as &dyn std::error::Error, "unneeded shares could not be let go");
        }
    }

    /// Lets go what this machine had uploaded before `since` and nobody has adopted: earlier incarnations' uploads. Only when the group has
    /// settled what was pending.
    pub fn sweep(&self, since: u64) {
        match self.server.drop_unrenewed_since(self.machine, since) {
            Ok(0) => {}
            Ok(count) => tracing::info!(count, "dropped uploads that a crash had left unreferenced"),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "old uploads could not be swept; the next start does it"
                );
            }
        }
    }
}

fn why(error: &StoreError) -> Error {
    if matches!(error, StoreError::Full) { Error::NoSpace } else { Error::Damaged }
}

pub(crate) fn utc_secs() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
