//! The current credentials of a machine. A renewal of the authority changes them while the machine
//! is up, for all its connections at once.

use crate::authority::{Authority, AuthorityKeys, CertificateError, Credentials};
use crate::tls::{self, Reception};
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::{Certificates, MachineId, Versions};

/// The machine's current credentials, and the TLS configurations that follow from them.
pub struct CredentialStore {
    dir: PathBuf,
    now: Mutex<Now>,
}

struct Now {
    credentials: Credentials,
    client: Arc<ClientConfig>,
    /// The server's side of TLS, once the machine serves.
    reception: Option<Arc<Reception>>,
    /// The authorities that a server knows, by number.
    authorities: Vec<(u64, AuthorityKeys)>,
}

impl CredentialStore {
    /// Opens the credentials of the machine in `dir`, whose program knows these versions.
    pub fn open(dir: &Path, knows: Versions) -> Result<Arc<CredentialStore>, CertificateError> {
        let credentials = Credentials::open(dir)?.of_who_knows(knows);
        CredentialStore::of(dir, credentials)
    }

    /// Makes the store of the machine in `dir` from these credentials.
    pub fn of(dir: &Path, credentials: Credentials) -> Result<Arc<CredentialStore>, CertificateError> {
        let now = Mutex::new(Now::new(credentials, Vec::new(), false)?);
        Ok(Arc::new(CredentialStore { dir: dir.to_path_buf(), now }))
    }

    /// The caller that this machine is.
    pub fn caller(self: &Arc<Self>) -> Caller {
        let knows = self.now.lock().credentials.knows;
        Caller { is: CallerIs::Machine(self.clone()), knows }
    }

    /// The server's side of TLS, made at the first use.
    pub fn reception(&self) -> Result<Arc<Reception>, CertificateError> {
        let mut now = self.now.lock();
        if let Some(reception) = &now.reception {
            return Ok(reception.clone());
        }
        let reception = Arc::new(now.reception()?);
        now.reception = Some(reception.clone());
        Ok(reception)
    }

    /// The fingerprint of the authority that has certified this machine.
    pub fn certified_by(&self) -> [u8; 32] {
        crate::authority::fingerprint(&self.now.lock().credentials.authority)
    }

    /// The machine's public key.
    pub fn public_key(&self) -> [u8; 32] {
        self.now.lock().credentials.public_key()
    }

    /// Takes the machine's new certificate and its authority's, from an authority. Unusable
    /// certificates are not kept.
    pub fn take(&self, certificate: Vec<u8>, authority: Vec<u8>) -> Result<(), CertificateError> {
        let mut now = self.now.lock();
        let credentials = now.credentials.certified(certificate, authority);
        *now = now.with(&self.dir, credentials)?;
        Ok(())
    }

    /// Makes this machine the server `machine`, with all authorities, the latest last. The machine
    /// certifies itself by the latest one. It keeps a certificate of a later authority: a server's
    /// rows may be behind what the machine was given.
    pub fn serve(
        &self,
        machine: MachineId,
        authorities: &[(u64, AuthorityKeys)],
    ) -> Result<(), CertificateError> {
        let mut now = self.now.lock();
        if now.authorities == authorities {
            return Ok(());
        }
        let mut next = Now::new(now.credentials.clone(), authorities.to_vec(), true)?;
        if let Some(((_, latest), before)) = authorities.split_last()
            && before.iter().any(|(_, authority)| authority.certificate == *now.credentials.authority)
        {
            let key = now.credentials.public_key();
            let (certificate, authority) = Authority::read(latest)?.certify(machine, key, true)?;
            next = next.with(&self.dir, now.credentials.certified(certificate, authority))?;
        }
        *now = next;
        Ok(())
    }

    /// Makes the machine a server no more.
    pub fn retire(&self) -> Result<(), CertificateError> {
        let mut now = self.now.lock();
        *now = Now::new(now.credentials.clone(), Vec::new(), false)?;
        Ok(())
    }
}

impl Now {
    fn new(
        credentials: Credentials,
        authorities: Vec<(u64, AuthorityKeys)>,
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

    /// The state with other credentials, which are also stored in `dir`.
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

/// The certificates by which earlier authorities introduce the authority that has certified
/// `credentials`.
fn introductions(
    credentials: &Credentials,
    authorities: &[(u64, AuthorityKeys)],
) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let own = |(_, row): &(u64, AuthorityKeys)| row.certificate == *credentials.authority;
    let mut before = authorities.split(own);
    let (Some(before), Some((_, own))) = (before.next(), authorities.iter().find(|row| own(row))) else {
        return Ok(Vec::new());
    };
    let own = Authority::read(own)?;
    before.iter().map(|(_, row)| Authority::read(row)?.introduce(&own)).collect()
}

/// The identity by which a program calls others.
#[derive(Clone)]
pub struct Caller {
    is: CallerIs,
    /// The versions that its greetings state.
    pub knows: Versions,
}

#[derive(Clone)]
enum CallerIs {
    Machine(Arc<CredentialStore>),
    /// A machine that is about to join. It recognizes a server by the fingerprint of its authority.
    Stranger(Arc<ClientConfig>, [u8; 32]),
}

impl Caller {
    /// A caller that is about to join the cluster whose authority has this fingerprint.
    pub fn stranger(authority: [u8; 32]) -> Result<Caller, CertificateError> {
        Ok(Caller::by(tls::stranger(authority)?, authority))
    }

    /// A caller with a configuration that is never renewed.
    pub fn by(config: Arc<ClientConfig>, authority: [u8; 32]) -> Caller {
        Caller { is: CallerIs::Stranger(config, authority), knows: Versions::KNOWN }
    }

    /// The fingerprint of the authority that certifies the servers it calls.
    pub fn authority(&self) -> [u8; 32] {
        match &self.is {
            CallerIs::Machine(store) => store.certified_by(),
            CallerIs::Stranger(_, authority) => *authority,
        }
    }

    /// The current TLS configuration: its own certificate, and the servers that it accepts.
    pub fn tls(&self) -> Arc<ClientConfig> {
        match &self.is {
            CallerIs::Machine(store) => store.now.lock().client.clone(),
            CallerIs::Stranger(config, _) => config.clone(),
        }
    }

    /// Takes other certificates from a server. Returns whether this caller is a machine, which has
    /// certificates.
    pub fn take(&self, (certificate, authority): Certificates) -> Result<bool, CertificateError> {
        match &self.is {
            CallerIs::Machine(store) => store.take(certificate, authority).map(|()| true),
            CallerIs::Stranger(..) => Ok(false),
        }
    }
}
