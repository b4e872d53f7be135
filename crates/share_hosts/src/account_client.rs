//! A share server's client for a program that has an account's key. The program's machine, one of
//! the cluster, carries the requests.

use bytes::Bytes;
use crypto::SecretKey;
use namespace::ShareId;
use net::{CarrierError, CertificateError, CredentialStore, ShareCarrier};
use os::{fill_random, private};
use shares::{AccountKey, Signed, Usage};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use wire::{AccountAnswer, AccountCall, AccountRefusal, AccountRequest, ShareCall, Versions};

/// How many leases one request asks for.
const LEASED_TOGETHER: usize = 1000;

/// Why an account's request failed.
#[derive(Debug, thiserror::Error)]
pub enum AccountClientError {
    /// The key's file cannot be used.
    #[error("the key in {file}: {why}")]
    Key {
        /// The file.
        file: PathBuf,
        /// The cause.
        why: String,
    },
    /// This machine is not one of the cluster.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The share server cannot be asked.
    #[error(transparent)]
    Carrier(#[from] CarrierError),
    /// The share server refuses.
    #[error(transparent)]
    Refused(#[from] AccountRefusal),
    /// The share server has no sound share of that name.
    #[error("there is no sound share {share} at this server")]
    NotFound {
        /// The share's name.
        share: String,
    },
    /// The answer does not fit the request.
    #[error("the share server's answer makes no sense")]
    Foreign,
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Random(#[source] std::io::Error),
}

/// The file that holds a key.
#[derive(Debug)]
pub struct KeyFile;

impl KeyFile {
    /// Makes a new key in a file that must not exist yet. Returns the key's public half in
    /// hexadecimal digits.
    pub fn generate(file: &Path) -> Result<String, AccountClientError> {
        let wrong = |why: String| AccountClientError::Key { file: file.to_path_buf(), why };
        let mut seed = [0; 32];
        fill_random(&mut seed).map_err(AccountClientError::Random)?;
        let secret = SecretKey::of_seed(&seed);
        let written = || {
            let mut new = private::options().write(true).create_new(true).open(file)?;
            new.write_all(secret.pkcs8())?;
            new.sync_all()
        };
        written().map_err(|error: std::io::Error| wrong(error.to_string()))?;
        Ok(public(&secret))
    }

    /// The public half of the key in `file`, in hexadecimal digits.
    pub fn public(file: &Path) -> Result<String, AccountClientError> {
        Ok(public(&KeyFile::read(file)?))
    }

    fn read(file: &Path) -> Result<SecretKey, AccountClientError> {
        let wrong = |why: String| AccountClientError::Key { file: file.to_path_buf(), why };
        let document = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
        SecretKey::read(&document).map_err(|error| wrong(error.to_string()))
    }
}

fn public(secret: &SecretKey) -> String {
    data_encoding::HEXLOWER.encode(&secret.public().0)
}

/// An account at one share server.
pub struct AccountClient {
    carrier: ShareCarrier,
    store: [u8; 16],
    secret: SecretKey,
    nonce: u64,
}

impl AccountClient {
    /// Connects to the share server at `address` as the machine in `data`, for the account whose
    /// key is in `key`.
    pub fn connect(data: &Path, address: &str, key: &Path) -> Result<AccountClient, AccountClientError> {
        let secret = KeyFile::read(key)?;
        let caller = CredentialStore::open(data, Versions::KNOWN)?.caller();
        let mut carrier = ShareCarrier::connect(address, &caller)?;
        let (_, store) = carrier.call(ShareCall::Which, &[])?;
        let store = store.as_ref().try_into().map_err(|_| AccountClientError::Foreign)?;
        Ok(AccountClient { carrier, store, secret, nonce: 0 })
    }

    /// Stores a new share that the account leases; returns the share's name.
    pub fn store(&mut self, body: &[u8]) -> Result<ShareId, AccountClientError> {
        let mut name = [0; 8];
        fill_random(&mut name).map_err(AccountClientError::Random)?;
        let share = AccountKey::of(&self.secret).name(name);
        let length = u32::try_from(body.len()).map_err(|_| AccountRefusal::Malformed)?;
        let call = AccountCall::Store { shares: vec![(share, length)], body: *crypto::hash(body).as_bytes() };
        match self.ask(&call, body)? {
            AccountAnswer::Held { shares, .. } if shares == [share] => Ok(share),
            _ => Err(AccountClientError::Foreign),
        }
    }

    /// Reads a whole share, as it was stored.
    pub fn read(&mut self, share: ShareId) -> Result<Bytes, AccountClientError> {
        let (results, mut whole) = self.carrier.call(ShareCall::Fetch(share), &[])?;
        let absent = || AccountClientError::NotFound { share: share.to_string() };
        if results != [Ok(())] || whole.len() < 16 {
            return Err(absent());
        }
        let digest = whole.split_to(16);
        if *digest == shares::digest(&whole) { Ok(whole) } else { Err(absent()) }
    }

    /// Takes or renews leases. Returns the shares that are leased then, and the end of the leases.
    pub fn lease(&mut self, shares: Vec<ShareId>) -> Result<(Vec<ShareId>, u64), AccountClientError> {
        match self.ask(&AccountCall::Lease(shares), &[])? {
            AccountAnswer::Held { shares, until } => Ok((shares, until)),
            _ => Err(AccountClientError::Foreign),
        }
    }

    /// Renews any number of leases; returns the shares that are leased then.
    pub fn renew(&mut self, shares: &[ShareId]) -> Result<Vec<ShareId>, AccountClientError> {
        let mut held = Vec::with_capacity(shares.len());
        for some in shares.chunks(LEASED_TOGETHER) {
            held.extend(self.lease(some.to_vec())?.0);
        }
        Ok(held)
    }

    /// Releases leases.
    pub fn release(&mut self, shares: Vec<ShareId>) -> Result<(), AccountClientError> {
        match self.ask(&AccountCall::LetGo(shares), &[])? {
            AccountAnswer::Done => Ok(()),
            _ => Err(AccountClientError::Foreign),
        }
    }

    /// Lists all shares that the account has leased.
    pub fn list(&mut self) -> Result<Vec<ShareId>, AccountClientError> {
        let mut all: Vec<ShareId> = Vec::new();
        loop {
            match self.ask(&AccountCall::List(all.last().copied()), &[])? {
                AccountAnswer::Leased(some) if some.is_empty() => return Ok(all),
                // The shares must be in order, or the loop would never end.
                AccountAnswer::Leased(some) if some.first() > all.last() && some.is_sorted() => {
                    all.extend(some)
                }
                _ => return Err(AccountClientError::Foreign),
            }
        }
    }

    /// The usage of the account, and its quota.
    pub fn usage(&mut self) -> Result<(Usage, Option<Usage>), AccountClientError> {
        let usage = |(shares, bytes)| Usage { shares, bytes };
        match self.ask(&AccountCall::Usage, &[])? {
            AccountAnswer::Usage { usage: its, quota } => Ok((usage(its), quota.map(usage))),
            _ => Err(AccountClientError::Foreign),
        }
    }

    fn ask(&mut self, call: &AccountCall, body: &[u8]) -> Result<AccountAnswer, AccountClientError> {
        // The nonce is the time, so it grows for every program that uses this key.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        self.nonce = u64::try_from(now).unwrap_or(u64::MAX).max(self.nonce.saturating_add(1));
        let signed = Signed::by(&self.secret, &self.store, self.nonce, wire::encode(call));
        let (first, second) = signed.signature.split_at(32);
        let half = |half: &[u8]| <[u8; 32]>::try_from(half).expect("half of a signature of 64 bytes");
        let request = AccountRequest {
            key: signed.key.0,
            nonce: signed.nonce,
            signature: (half(first), half(second)),
            call: signed.request,
        };
        let (_, answer) = self.carrier.call(ShareCall::Account(request), body)?;
        match wire::decode(&answer).map_err(|_| AccountClientError::Foreign)? {
            AccountAnswer::Refused(why) => Err(why.into()),
            answer => Ok(answer),
        }
    }
}
