//! As what a machine calls and is called. That changes while it is up: another authority certifies it, it becomes a server, or is one no more.

use super::authority::{Authority, CertificateError, Credentials, fingerprint};
use super::tls::{self, Caller, Reception};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::{MachineId, Versions};

/// See the module.
pub(crate) struct Identity {
    dir: PathBuf,
    machine: MachineId,
    caller: Caller,
    now: Mutex<Now>,
}

struct Now {
    credentials: Credentials,
    /// The authorities by which it takes calls, by number, and how.
    certified: Vec<u64>,
    reception: Option<Arc<Reception>>,
}

impl Identity {
    /// That of `machine` in `dir`, whose program knows these versions.
    pub(crate) fn open(dir: &Path, machine: MachineId, knows: Versions) -> Result<Identity, CertificateError> {
        let credentials = Credentials::open(dir)?.of_who_knows(knows);
        let caller = tls::client(&credentials)?;
        let now = Mutex::new(Now { credentials, certified: Vec::new(), reception: None });
        Ok(Identity { dir: dir.to_path_buf(), machine, caller, now })
    }

    /// How it calls others.
    pub(crate) fn caller(&self) -> Caller {
        self.caller.clone()
    }

    /// Its public key.
    pub(crate) fn public_key(&self) -> Result<[u8; 32], CertificateError> {
        self.now.lock().credentials.public_key()
    }

    /// By what tokens know the cluster's authority.
    pub(crate) fn authority(&self) -> [u8; 32] {
        fingerprint(&self.now.lock().credentials.authority)
    }

    /// A server has certified it anew.
    pub(crate) fn renew(&self, certificate: Vec<u8>, authority: Vec<u8>) -> Result<(), CertificateError> {
        let mut now = self.now.lock();
        Credentials::keep(&self.dir, &certificate, &authority)?;
        now.credentials = now.credentials.certified(certificate, authority);
        now.certified.clear();
        self.caller.renew([&now.credentials].into_iter())
    }

    /// It serves, and these authorities are those of its rows; a new member has none yet, and takes calls as what it was made a server by.
    pub(crate) fn serve(&self, authorities: &[(u64, directory::Authority)]) -> Result<(), CertificateError> {
        let mut now = self.now.lock();
        let numbers = authorities.iter().map(|(number, _)| *number);
        if now.reception.is_some() && now.certified.iter().copied().eq(numbers.clone()) {
            return Ok(());
        }
        if authorities.is_empty() {
            let own = now.credentials.certified(
                now.credentials.certificate.to_vec(),
                now.credentials.authority.to_vec(),
            );
            now.reception = Some(Arc::new(Reception::new(&[(0, own)])?));
            return Ok(());
        }
        let key = now.credentials.public_key()?;
        let mut certified = Vec::with_capacity(authorities.len());
        for (number, row) in authorities.iter().rev() {
            let (certificate, authority) = Authority::of_row(row)?.certify(self.machine, key, true)?;
            certified.push((*number, now.credentials.certified(certificate, authority)));
        }
        let reception = Arc::new(Reception::new(&certified)?);
        self.caller.renew(certified.iter().map(|(_, credentials)| credentials))?;
        if let Some((_, latest)) = certified.into_iter().next()
            && latest.authority != now.credentials.authority
        {
            Credentials::keep(&self.dir, &latest.certificate, &latest.authority)?;
            now.credentials = latest;
        }
        (now.certified, now.reception) = (numbers.collect(), Some(reception));
        Ok(())
    }

    /// It serves no more.
    pub(crate) fn retire(&self) {
        let mut now = self.now.lock();
        (now.certified, now.reception) = (Vec::new(), None);
    }

    /// How it takes calls, if it does.
    pub(super) fn reception(&self) -> Option<Arc<Reception>> {
        self.now.lock().reception.clone()
    }
}
