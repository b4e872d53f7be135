//! The credentials of a machine as they are now: they change while it is up, when the authority is
//! renewed, and for all its connections at once.

use super::authority::{Authority, CertificateError, Credentials};
use super::link::End;
use super::tls::{self, Reception};
use directory::CertificateAuthority;
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::{Certificates, GreetingError, MachineId, Versions};

/// See the module.
pub(crate) struct CredentialStore {
    dir: PathBuf,
    now: Mutex<Now>,
}

struct Now {
    credentials: Credentials,
    client: Arc<ClientConfig>,
    /// By what a server takes calls, since it serves.
    reception: Option<Arc<Reception>>,
    /// What a server knows of.
    authorities: Vec<(u64, CertificateAuthority)>,
}

impl CredentialStore {
    /// Of the machine in `dir`, whose program knows these versions.
    pub(crate) fn open(dir: &Path, knows: Versions) -> Result<Arc<CredentialStore>, CertificateError> {
        let credentials = Credentials::open(dir)?.of_who_knows(knows);
        CredentialStore::of(dir, credentials)
    }

    /// Of the machine in `dir` with these credentials.
    pub(super) fn of(dir: &Path, credentials: Credentials) -> Result<Arc<CredentialStore>, CertificateError> {
        let now = Mutex::new(Now::new(credentials, Vec::new(), false)?);
        Ok(Arc::new(CredentialStore { dir: dir.to_path_buf(), now }))
    }

    /// As what the machine calls.
    pub(crate) fn caller(self: &Arc<Self>) -> Caller {
        let knows = self.now.lock().credentials.knows;
        Caller { is: CallerIs::Machine(self.clone()), knows }
    }

    /// By what this server takes calls.
    pub(super) fn reception(&self) -> Result<Arc<Reception>, CertificateError> {
        let mut now = self.now.lock();
        if let Some(reception) = &now.reception {
            return Ok(reception.clone());
        }
        let reception = Arc::new(now.reception()?);
        now.reception = Some(reception.clone());
        Ok(reception)
    }

    /// The authority that has certified this machine, by its fingerprint.
    pub(super) fn certified_by(&self) -> [u8; 32] {
        super::authority::fingerprint(&self.now.lock().credentials.authority)
    }

    /// The machine's public key.
    pub(crate) fn public_key(&self) -> Result<[u8; 32], CertificateError> {
        self.now.lock().credentials.public_key()
    }

    /// An authority has given the machine these: its certificate, and the authority's. What cannot
    /// be used is not kept.
    pub(crate) fn take(&self, certificate: Vec<u8>, authority: Vec<u8>) -> Result<(), CertificateError> {
        let mut now = self.now.lock();
        let credentials = now.credentials.certified(certificate, authority);
        *now = now.with(&self.dir, credentials)?;
        Ok(())
    }

    /// The machine is `machine`, a server, and these are the authorities that there are, the latest
    /// last. By that one it certifies itself, unless it has a certificate of a later one: what a
    /// server knows may be behind what it was given.
    pub(crate) fn serve(
        &self,
        machine: MachineId,
        authorities: &[(u64, CertificateAuthority)],
    ) -> Result<(), CertificateError> {
        let mut now = self.now.lock();
        if now.authorities == authorities {
            return Ok(());
        }
        let mut next = Now::new(now.credentials.clone(), authorities.to_vec(), true)?;
        if let Some(((_, latest), before)) = authorities.split_last()
            && before.iter().any(|(_, authority)| authority.certificate == *now.credentials.authority)
        {
            let key = now.credentials.public_key()?;
            let (certificate, authority) = Authority::of_row(latest)?.certify(machine, key, true)?;
            next = next.with(&self.dir, now.credentials.certified(certificate, authority))?;
        }
        *now = next;
        Ok(())
    }

    /// The machine is no server any more.
    pub(crate) fn retire(&self) -> Result<(), CertificateError> {
        let mut now = self.now.lock();
        *now = Now::new(now.credentials.clone(), Vec::new(), false)?;
        Ok(())
    }
}

impl Now {
    fn new(
        credentials: Credentials,
        authorities: Vec<(u64, CertificateAuthority)>,
        serves: bool,
    ) -> Result<Now, CertificateError> {
        let introductions = introductions(&credentials, &authorities)?;
        let client = tls::client(&credentials, &introductions)?;
        let mut now = Now { credentials, client, reception: None, authorities };
        if serves {
            now.reception = Some(Arc::new(now.reception()?));
        }
        Ok(now)
    }

    /// The same with other credentials, which are kept in `dir`.
    fn with(&self, dir: &Path, credentials: Credentials) -> Result<Now, CertificateError> {
        let next = Now::new(credentials, self.authorities.clone(), self.reception.is_some())?;
        Credentials::keep(dir, &next.credentials.certificate, &next.credentials.authority)?;
        Ok(next)
    }

    fn reception(&self) -> Result<Reception, CertificateError> {
        let known = self.authorities.iter();
        let known: Vec<_> = known.map(|(number, row)| (*number, row.certificate.clone().into())).collect();
        let introductions = introductions(&self.credentials, &self.authorities)?;
        Reception::new(&self.credentials, &known, &introductions)
    }
}

/// By what a machine that knows an earlier authority knows the one that has certified
/// `credentials`.
fn introductions(
    credentials: &Credentials,
    authorities: &[(u64, CertificateAuthority)],
) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let own = |(_, row): &(u64, CertificateAuthority)| row.certificate == *credentials.authority;
    let mut before = authorities.split(own);
    let (Some(before), Some((_, own))) = (before.next(), authorities.iter().find(|row| own(row))) else {
        return Ok(Vec::new());
    };
    let own = Authority::of_row(own)?;
    before.iter().map(|(_, row)| Authority::of_row(row)?.introduce(&own)).collect()
}

/// As what a program calls others.
#[derive(Clone)]
pub(crate) struct Caller {
    is: CallerIs,
    /// What it greets with.
    pub(super) knows: Versions,
}

#[derive(Clone)]
enum CallerIs {
    Machine(Arc<CredentialStore>),
    /// One that is about to join, and knows a server by its authority's fingerprint.
    Stranger(Arc<ClientConfig>, [u8; 32]),
}

impl Caller {
    /// One that is about to join the cluster whose authority has this fingerprint.
    pub(super) fn stranger(authority: [u8; 32]) -> Result<Caller, CertificateError> {
        Ok(Caller::by(tls::stranger(authority)?, authority))
    }

    /// The same, by a configuration that nobody renews.
    pub(super) fn by(config: Arc<ClientConfig>, authority: [u8; 32]) -> Caller {
        Caller { is: CallerIs::Stranger(config, authority), knows: Versions::KNOWN }
    }

    /// The fingerprint of the authority that certifies whom it calls.
    pub(super) fn authority(&self) -> [u8; 32] {
        match &self.is {
            CallerIs::Machine(store) => store.certified_by(),
            CallerIs::Stranger(_, authority) => *authority,
        }
    }

    /// Who it is, and whom it expects, as that is now.
    pub(super) fn tls(&self) -> Arc<ClientConfig> {
        match &self.is {
            CallerIs::Machine(store) => store.now.lock().client.clone(),
            CallerIs::Stranger(config, _) => config.clone(),
        }
    }

    /// A server has given it other certificates. How the call ends.
    pub(super) fn take(&self, (certificate, authority): Certificates) -> Result<End, CertificateError> {
        match &self.is {
            CallerIs::Machine(store) => store.take(certificate, authority).map(|()| End::Certified),
            CallerIs::Stranger(..) => Ok(GreetingError::Foreign.into()),
        }
    }
}
